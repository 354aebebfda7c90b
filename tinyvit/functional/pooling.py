"""Pooling of feature maps: the largest or the average number of each window, or the average of each map."""

from typing import NamedTuple

from tinyvit.arrays import Array, array_module
from tinyvit.dispatch import backward_of, operation
from tinyvit.functional.windows import Windows, windows_on


class MaxPoolCache(NamedTuple):
    place: Array      # (B, C, H', W')  which number of its window was the largest, counted row by row
    windows: Windows


@operation
def max_pool2d(x, kernel_size, stride=None, padding=0):
    """The largest number of each window of `x` (B, C, H, W): (B, C, H', W').

    kernel_size, stride and padding are ints or (height, width); the stride is by default the size of the kernel. The
    padding is never the largest. Of equal numbers the first counts; NaN counts as the largest. Complex numbers are
    compared by their real parts. Raises ValueError for a kernel that is larger than the padded images, and for a
    padding of more than half the kernel.
    """
    windows = pooling_windows("max_pool2d", x, kernel_size, stride, padding)
    padded, xp = windows.pad(x, float("-inf")), array_module(x)
    inside = windows.pad(xp.ones(windows.image, bool))                         # −∞ inside comes before that outside
    (row, column), *others = windows.offsets()
    y, found = windows.at(padded, row, column), windows.at(inside, row, column)
    place = xp.zeros(y.shape, "int32")
    for i, (row, column) in enumerate(others, 1):
        there, pixel = windows.at(padded, row, column), windows.at(inside, row, column)
        larger = (there.real > y.real) | (there != there) | (pixel & ~found)
        y, place, found = xp.where(larger, there, y), xp.where(larger, i, place), found | pixel
    return xp.ascontiguousarray(y), MaxPoolCache(place, windows)


@backward_of(max_pool2d, result=lambda cache: cache.place.shape)
def max_pool2d_backward(dy, cache):
    """The gradient of a window goes to its largest number; a pixel adds up those of all windows that it is in."""
    place, windows = cache
    xp = array_module(dy)
    padded = xp.zeros((*dy.shape[:2], *windows.padded), dy.dtype)
    for i, (row, column) in enumerate(windows.offsets()):
        windows.at(padded, row, column)[...] += xp.where(place == i, dy, 0)
    return xp.ascontiguousarray(windows.crop(padded))


class AvgPoolCache(NamedTuple):
    shape: tuple      # (B, C, H, W) of what came in
    windows: Windows


@operation
def avg_pool2d(x, kernel_size, stride=None, padding=0):
    """The mean of each window of `x` (B, C, H, W): (B, C, H', W'). The zeros of the padding count.

    kernel_size, stride and padding are ints or (height, width); the stride is by default the size of the kernel.
    Raises ValueError for a kernel that is larger than the padded images, and for a padding of more than half the
    kernel.
    """
    windows = pooling_windows("avg_pool2d", x, kernel_size, stride, padding)
    padded, (p, q) = windows.pad(x), windows.kernel
    total = sum(windows.at(padded, row, column) for row, column in windows.offsets())
    return total * (1 / (p * q)), AvgPoolCache(x.shape, windows)


@backward_of(avg_pool2d, result=lambda cache: (*cache.shape[:2], *cache.windows.grid))
def avg_pool2d_backward(dy, cache):
    """Every number of a window of P × Q contributed 1 / (P Q) of itself."""
    windows = cache.windows
    xp, (p, q) = array_module(dy), windows.kernel
    padded, share = xp.zeros((*dy.shape[:2], *windows.padded), dy.dtype), dy * (1 / (p * q))
    for row, column in windows.offsets():
        windows.at(padded, row, column)[...] += share
    return xp.ascontiguousarray(windows.crop(padded))


class GlobalAvgPoolCache(NamedTuple):
    shape: tuple  # (B, C, H, W) of what came in


@operation
def global_avg_pool2d(x):
    """The mean of each feature map of `x` (B, C, H, W): (B, C). Lin, Chen & Yan 2013, "Network in network"."""
    if x.ndim != 4 or not x.shape[2] * x.shape[3]:
        raise ValueError(f"global_avg_pool2d: expected images x (B, C, H, W) of at least one pixel, got {x.shape}")
    return x.reshape(*x.shape[:2], x.shape[2] * x.shape[3]).mean(-1), GlobalAvgPoolCache(x.shape)


@backward_of(global_avg_pool2d, result=lambda cache: cache.shape[:2])
def global_avg_pool2d_backward(dy, cache):
    """Each of the H W pixels contributed 1 / (H W) of itself."""
    dx = array_module(dy).zeros(cache.shape, dy.dtype)
    dx += (dy * (1 / (cache.shape[2] * cache.shape[3])))[:, :, None, None]
    return dx


def pooling_windows(name, x, kernel_size, stride, padding):
    """The windows of a pooling, as `windows_on`, none of them outside the images."""
    windows = windows_on(name, x, kernel_size, kernel_size if stride is None else stride, padding)
    if any(2 * margin > side for margin, side in zip(windows.padding, windows.kernel)):
        (p, q), (top, left) = windows.kernel, windows.padding
        raise ValueError(f"{name}: expected a padding of at most half the kernel {p}×{q}, got {top}×{left}")
    return windows
