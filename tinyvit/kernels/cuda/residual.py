"""The end of a residual branch in one pass: its bias, stochastic depth, the sum, and, if it follows, a layer norm.

The backward sums up the gradient of the bias on its way.
"""

from typing import NamedTuple

from tinyvit.backend import array_module
from tinyvit.functional.dropout import drop_path
from tinyvit.functional.layernorm import fits as norm_fits
from tinyvit.functional.residual import (
    add_branch,
    add_branch_backward,
    add_branch_layernorm,
    add_branch_layernorm_backward,
    fits,
)
from tinyvit.kernels.cuda.column_sums import add_sums_of_blocks
from tinyvit.kernels.cuda.dropout import CudaDropoutCache, cache_of, of_rows
from tinyvit.kernels.cuda.layernorm import LONGEST, MOST_BACKWARD, CudaLayerNormCache, gradients, normalised
from tinyvit.kernels.cuda.source import (
    KINDS,
    PACKED,
    Source,
    blocks,
    contiguous,
    empty_like,
    pack_of,
    run_reference,
    type_of,
)

SOURCE = Source("residual.cu", PACKED)
BLOCK, WARPS = 256, 8
ROWS = 8  # that a thread goes through in the forward


class CudaAddBranchCache(NamedTuple):
    drop: CudaDropoutCache


class CudaBranchLayerNormCache(NamedTuple):
    norm: CudaLayerNormCache
    drop: CudaDropoutCache


def add_branch_cuda(x, branch, offset, rate=0.0, key=None):
    if not fits(x, branch, offset):
        return add_branch.reference(x, branch, offset, rate, key)  # raises
    if x.dtype != branch.dtype or offset.dtype != "float32":
        return run_reference(add_branch, x, branch, offset, rate, key)
    drop = cache_of(drop_path, x, rate, key, whole=True)
    x, branch, offset = map(contiguous, (x, branch, offset))
    y, D = empty_like(x), x.shape[-1]
    pack = pack_of(D, x, branch, y, offset)
    packs, packs_of_row = x.size // pack, D // pack
    stride = packs_of_row * blocks(x.size // D, ROWS)
    SOURCE.launch(
        "add_branch", blocks(stride, BLOCK), BLOCK, x, branch, offset, y, *of_rows(drop, x.shape), packs, packs_of_row,
        stride, T=type_of(x), PACK=pack,
    )  # fmt: skip
    return y, CudaAddBranchCache(drop)


def add_branch_backward_cuda(dy, cache, into):
    if ("cupy", str(dy.dtype)) not in KINDS:
        return run_reference(add_branch_backward, dy, cache)
    dy, wanted = contiguous(dy), into[0] is not False
    dropped = cache.drop.first is not None
    dbranch = empty_like(dy) if dropped else dy
    if not (dropped or wanted):
        return dy, dbranch, None
    D = dy.shape[-1]
    rows, pack = dy.size // D, pack_of(D, dy, dbranch)
    parts = min(blocks(rows, WARPS), MOST_BACKWARD)
    partial = array_module(dy).empty((1, parts, D), "float32") if wanted else None
    SOURCE.launch(
        "add_branch_backward", (blocks(D, 32 * pack), parts), BLOCK, dy, dbranch if dropped else None,
        partial, *of_rows(cache.drop, dy.shape), rows, D, T=type_of(dy), PACK=pack,
    )  # fmt: skip
    return dy, dbranch, *(add_sums_of_blocks(partial, into) if wanted else (None,))


def add_branch_layernorm_cuda(x, branch, offset, weight, bias, eps=1e-6, rate=0.0, key=None):
    if not (fits(x, branch, offset) and norm_fits(x, weight, bias)):
        return add_branch_layernorm.reference(x, branch, offset, weight, bias, eps, rate, key)  # raises
    fit = x.dtype == branch.dtype and offset.dtype == weight.dtype == bias.dtype == "float32"
    if not fit or x.shape[-1] > LONGEST:
        return run_reference(add_branch_layernorm, x, branch, offset, weight, bias, eps, rate, key)
    drop = cache_of(drop_path, x, rate, key, whole=True)
    total, y, cache = normalised(x, branch, weight, bias, eps, offset, of_rows(drop, x.shape))
    return (total, y), CudaBranchLayerNormCache(cache, drop)


def add_branch_layernorm_backward_cuda(dy, cache, into):
    dtotal, dy = dy
    norm, drop = cache
    if not all(each is None or each.dtype == norm.x.dtype for each in (dtotal, dy)):
        return run_reference(add_branch_layernorm_backward, (dtotal, dy), cache)
    dbranch = None if drop.first is None else array_module(dy).empty(dy.shape, dy.dtype)
    goals = (*into[1:], into[0])
    dx, dweight, dbias, doffset = gradients(dy, dtotal, norm, goals, dbranch, of_rows(drop, dy.shape))
    return dx, dx if dbranch is None else dbranch, doffset, dweight, dbias


for kind in KINDS:
    add_branch.register(kind, add_branch_cuda)
    add_branch_layernorm.register(kind, add_branch_layernorm_cuda)
add_branch_backward.register_cache(CudaAddBranchCache, add_branch_backward_cuda)
add_branch_layernorm_backward.register_cache(CudaBranchLayerNormCache, add_branch_layernorm_backward_cuda)
