"""The transposed convolution whose windows don't overlap: every place becomes a square of pixels."""

from typing import NamedTuple

from tinyvit.arrays import Array
from tinyvit.dispatch import backward_of, operation
from tinyvit.functional.batchnorm import per_channel, sum_per_channel
from tinyvit.functional.patches import as_pair, patchify, unpatchify


class ConvTransposeCache(NamedTuple):
    x: Array         # (B, C, H, W)
    weight: Array    # (C, C', P, Q)
    has_bias: bool


def result_shape(cache):
    B, _, H, W = cache.x.shape
    _, filters, p, q = cache.weight.shape
    return B, filters, H * p, W * q


def parameter_shapes(cache):
    shapes = cache.weight.shape, cache.weight.shape[1:2]
    return shapes if cache.has_bias else shapes[:1]


@operation(arrays="x weight bias")
def conv_transpose2d(x, weight, bias=None, stride=1):
    """Make P×Q pixels of each place of feature maps `x` (B, C, H, W), with `weight` (C, C', P, Q) and `bias` (C',):

        y[b, o, P i + u, Q j + v] = bias[o] + Σ x[b, c, i, j] · weight[c, o, u, v]    over c

    y (B, C', P H, Q W). stride is P or (P, Q): that of the kernel, so that no two squares overlap, and this is a linear
    map of each place whose results are put together by `unpatchify`. Raises ValueError for a stride that isn't the
    kernel's size, and if the shapes don't fit. Zeiler et al. 2010, "Deconvolutional networks".
    Derived in notebooks/22.
    """
    if x.ndim != 4 or weight.ndim != 4 or len(weight) != x.shape[1] or not weight.size:
        raise ValueError(
            f"conv_transpose2d: expected x (B, C, H, W) and weight (C, C', P, Q), got {x.shape} and {weight.shape}"
        )
    _, C, H, W = x.shape
    _, filters, p, q = weight.shape
    if as_pair(stride) != (p, q):
        raise ValueError(f"conv_transpose2d: expected the stride of the kernel, {p}×{q}, got {stride}")
    if bias is not None and bias.shape != (filters,):
        raise ValueError(f"conv_transpose2d: expected bias ({filters},), got {bias.shape}")
    squares = as_rows(x) @ weight.reshape(C, -1)                               # (B, H·W, C'·P·Q)
    y, _ = unpatchify.reference(squares, (p, q), (H * p, W * q))
    if bias is not None:
        y = y + per_channel(bias, y)
    return y, ConvTransposeCache(x, weight, bias is not None)


@backward_of(conv_transpose2d, result=result_shape, parameters=parameter_shapes)
def conv_transpose2d_backward(dy, cache):
    """With the squares of dy as rows, as `patchify` cuts them: dx = dy weightᵀ, dweight = xᵀ dy, dbias = Σ dy.

    Returns (dx, dweight, dbias); without a bias, (dx, dweight).
    """
    x, weight, has_bias = cache
    dsquares, _ = patchify.reference(dy, weight.shape[2:])                     # (B, H·W, C'·P·Q)
    dx = (weight.reshape(len(weight), -1) @ dsquares.mT).reshape(x.shape)
    dweight = (as_rows(x).mT @ dsquares).sum(0).reshape(weight.shape)
    return (dx, dweight, sum_per_channel(dy)) if has_bias else (dx, dweight)


def as_rows(x):
    """Feature maps (B, C, H, W) as a row for each place, (B, H·W, C)."""
    return x.reshape(*x.shape[:2], x.shape[2] * x.shape[3]).mT
