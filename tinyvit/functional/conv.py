"""The convolution of images with filters."""

from typing import NamedTuple

from tinyvit.arrays import Array, array_module
from tinyvit.dispatch import backward_of, operation
from tinyvit.functional.batchnorm import per_channel, sum_per_channel
from tinyvit.functional.windows import Windows, is_int, windows_on


class ConvCache(NamedTuple):
    x: Array          # (B, C, H, W)
    weight: Array     # (O, C/G, P, Q)
    has_bias: bool
    groups: int
    windows: Windows


def result_shape(cache):
    return len(cache.x), len(cache.weight), *cache.windows.grid


def parameter_shapes(cache):
    shapes = cache.weight.shape, cache.weight.shape[:1]
    return shapes if cache.has_bias else shapes[:1]


@operation(arrays="x weight bias")
def conv2d(x, weight, bias=None, stride=1, padding=0, groups=1):
    """Slide filters `weight` (O, C/G, P, Q) over images `x` (B, C, H, W), padded with zeros, and add `bias` (O,):

        y[b, o, i, j] = bias[o] + Σ weight[o, c, u, v] · x[b, c, s i + u, s j + v]    over c, u and v

    y (B, O, H', W') with H' = (H + 2 padding − P) // stride + 1. stride and padding are ints or (height, width). Of G
    groups each has C/G channels of `x` and O/G filters, which see no other channels; with G = C it is a depthwise
    convolution. For each place (u, v) in a filter this is one matrix product: that of `linear`, on the images shifted
    by (u, v). Raises ValueError if the shapes don't fit, for a kernel that is larger than the padded images, and for
    groups that don't divide the channels. LeCun et al. 1989, "Backpropagation applied to handwritten zip code
    recognition".
    """
    windows = checked_windows(x, weight, bias, stride, padding, groups)
    padded, filters = windows.pad(x), in_groups(weight, groups)
    shape = len(weight), len(x), *windows.grid
    y = sum(
        filters[..., row, column] @ as_columns(windows.at(padded, row, column), groups)
        for row, column in windows.offsets()
    )                                                                          # (G, O/G, B·H'·W')
    y = array_module(x).ascontiguousarray(y.reshape(shape).transpose(1, 0, 2, 3))      # (B, O, H', W')
    if bias is not None:
        y = y + per_channel(bias, y)
    return y, ConvCache(x, weight, bias is not None, groups, windows)


@backward_of(conv2d, result=result_shape, parameters=parameter_shapes, can_skip_inputs=True)
def conv2d_backward(dy, cache):
    """With the images xᵤᵥ, shifted by (u, v): dxᵤᵥ = weightᵤᵥᵀ dy, added up over the places (u, v) of a filter;
    dweightᵤᵥ = dy xᵤᵥᵀ; dbias = Σ dy. Returns (dx, dweight, dbias); without a bias, (dx, dweight)."""
    check_cache(cache)
    x, weight, has_bias, groups, windows = cache
    xp = array_module(x)
    padded, filters, dcolumns = windows.pad(x), in_groups(weight, groups), as_columns(dy, groups)
    dpadded, dfilters = (xp.zeros(z.shape, xp.result_type(dy, x, weight)) for z in (padded, filters))
    shape = x.shape[1], len(x), *windows.grid
    for row, column in windows.offsets():
        there = windows.at(dpadded, row, column)
        there += (filters[..., row, column].mT @ dcolumns).reshape(shape).transpose(1, 0, 2, 3)
        dfilters[..., row, column] = dcolumns @ as_columns(windows.at(padded, row, column), groups).mT
    dx, dweight = xp.ascontiguousarray(windows.crop(dpadded)), dfilters.reshape(weight.shape)
    return (dx, dweight, sum_per_channel(dy)) if has_bias else (dx, dweight)


def in_groups(weight, groups):
    """Filters (O, C/G, P, Q) as (G, O/G, C/G, P, Q)."""
    return weight.reshape(groups, len(weight) // groups, *weight.shape[1:])


def as_columns(x, groups):
    """Images (B, C, H, W) as (G, C/G, B·H·W): a column per pixel, as matrix products need them."""
    B, C, H, W = x.shape
    return x.transpose(1, 0, 2, 3).reshape(groups, C // groups, B * H * W)


def check_cache(cache):
    """Raise ValueError for a cache whose arrays don't fit each other: kernels trust their shapes."""
    x, weight, _, groups, windows = cache
    fits = x.ndim == weight.ndim == 4 and x.shape[1] == groups * weight.shape[1] and not len(weight) % groups
    if not fits or (x.shape[2:], weight.shape[2:]) != (windows.image, windows.kernel):
        (H, W), (P, Q) = windows.image, windows.kernel
        raise ValueError(
            f"conv2d_backward: expected x (B, C, {H}, {W}) and weight (O, C/{groups}, {P}, {Q}) in the cache, got "
            f"{x.shape} and {weight.shape}"
        )


def checked_windows(x, weight, bias, stride, padding, groups):
    """The windows of the filters on the images; ValueError if the arrays or the groups don't fit."""
    if x.ndim != 4 or weight.ndim != 4 or not weight.size:
        raise ValueError(
            f"conv2d: expected images x (B, C, H, W) and weight (O, C/G, P, Q), not empty, got {x.shape} and "
            f"{weight.shape}"
        )
    C, filters = x.shape[1], len(weight)
    if not is_int(groups) or groups < 1 or C % groups or filters % groups:
        raise ValueError(f"conv2d: expected groups that divide the {C} channels and {filters} filters, got {groups!r}")
    if weight.shape[1] * groups != C:
        raise ValueError(
            f"conv2d: expected weight (O, {C // groups}, P, Q) for {C} channels in {groups} groups, got {weight.shape}"
        )
    if bias is not None and bias.shape != (filters,):
        raise ValueError(f"conv2d: expected bias ({filters},), got {bias.shape}")
    return windows_on("conv2d", x, weight.shape[2:], stride, padding)
