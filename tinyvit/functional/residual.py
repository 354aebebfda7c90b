"""The end of a residual branch: the bias of its last layer, stochastic depth, the sum, and the layer norm after it."""

from typing import Any, NamedTuple

from tinyvit.dispatch import backward_of, operation
from tinyvit.functional.dropout import drop_path, drop_path_backward
from tinyvit.functional.layernorm import add_layernorm, add_layernorm_backward, result_shape
from tinyvit.functional.sums import sum_rows


class AddBranchCache(NamedTuple):
    drop: Any  # of drop_path


@operation
def add_branch(x, branch, offset, rate=0.0, key=None):
    """Add a residual branch that still lacks its bias: y = x + drop_path(branch + offset).

    x and branch (B, ..., D), offset (D,); rate and key as for `drop_path`. Raises ValueError if the shapes don't fit.
    """
    check_shapes("add_branch", x, branch, offset)
    branch, c_drop = drop_path(branch + offset, rate, key)
    return x + branch, AddBranchCache(c_drop)


@backward_of(add_branch, result=lambda cache: cache.drop.shape, parameters=lambda cache: (cache.drop.shape[-1:],))
def add_branch_backward(dy, cache):
    """dx = dy, dbranch = drop_path_backward(dy) and doffset = Σ dbranch over all rows.

    Returns (dx, dbranch, doffset).
    """
    dbranch = drop_path_backward(dy, cache.drop)
    return dy, dbranch, sum_rows(dbranch)


class BranchLayerNormCache(NamedTuple):
    norm: Any  # of layernorm
    drop: Any  # of drop_path


@operation
def add_branch_layernorm(x, branch, offset, weight, bias, eps=1e-6, rate=0.0, key=None):
    """`add_branch` and the layer norm of its sum: ((x + drop_path(branch + offset), layernorm(of that)), cache).

    x and branch (B, ..., D), the others (D,). Raises ValueError if the shapes don't fit.
    """
    check_shapes("add_branch_layernorm", x, branch, offset)
    branch, c_drop = drop_path(branch + offset, rate, key)
    sum_and_norm, c_norm = add_layernorm(x, branch, weight, bias, eps)
    return sum_and_norm, BranchLayerNormCache(c_norm, c_drop)


@backward_of(
    add_branch_layernorm,
    result=lambda cache: [result_shape(cache.norm)] * 2,
    parameters=lambda cache: (cache.norm.weight.shape,) * 3,
)
def add_branch_layernorm_backward(dy, cache):
    """`dy` is a pair: the gradient of the sum from where else it goes, None if it goes nowhere, and that of its norm.

    Returns (dx, dbranch, doffset, dweight, dbias).
    """
    dx, dbranch, dweight, dbias = add_layernorm_backward(dy, cache.norm)
    dbranch = drop_path_backward(dbranch, cache.drop)
    return dx, dbranch, sum_rows(dbranch), dweight, dbias


add_branch_layernorm_backward.first_may_lack = True


def check_shapes(name, x, branch, offset):
    if not fits(x, branch, offset):
        shapes = f"{x.shape}, {branch.shape} and {offset.shape}"
        raise ValueError(f"{name}: expected x and branch (B, ..., D) and offset (D,), got {shapes}")


def fits(x, branch, offset):
    """Whether these are x (B, ..., D), branch like it, and offset (D,), with D > 0."""
    return x.ndim > 1 and x.shape[-1] > 0 and x.shape == branch.shape and offset.shape == x.shape[-1:]
