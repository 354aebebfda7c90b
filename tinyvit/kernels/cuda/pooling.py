"""Pooling: a thread for each window forward and for each pixel back, which gathers from the windows that see it."""

from math import prod

from tinyvit.backend import array_module
from tinyvit.functional.pooling import (
    AvgPoolCache,
    GlobalAvgPoolCache,
    MaxPoolCache,
    avg_pool2d,
    avg_pool2d_backward,
    global_avg_pool2d,
    global_avg_pool2d_backward,
    max_pool2d,
    max_pool2d_backward,
    pooling_windows,
)
from tinyvit.kernels.cuda.source import KINDS, TYPED, Source, blocks, contiguous, type_of

SOURCE = Source("pooling.cu", TYPED)
BLOCK, WARPS = 256, 8


def max_pool2d_cuda(x, kernel_size, stride=None, padding=0):
    windows = pooling_windows("max_pool2d", x, kernel_size, stride, padding)
    xp, x, shape = array_module(x), contiguous(x), (*x.shape[:2], *windows.grid)
    y, place = xp.empty(shape, x.dtype), xp.empty(shape, "int32")
    launch("max_pool_forward", (x, y, place), y.size, windows)
    return y, MaxPoolCache(place, windows)


def max_pool2d_backward_cuda(dy, cache):
    place, windows = cache
    dy, dx = contiguous(dy), array_module(dy).empty((*dy.shape[:2], *windows.image), dy.dtype)
    launch("max_pool_backward", (dy, contiguous(place), dx), dx.size, windows)
    return dx


def avg_pool2d_cuda(x, kernel_size, stride=None, padding=0):
    windows = pooling_windows("avg_pool2d", x, kernel_size, stride, padding)
    x, y = contiguous(x), array_module(x).empty((*x.shape[:2], *windows.grid), x.dtype)
    launch("avg_pool_forward", (x, y, 1 / prod(windows.kernel)), y.size, windows)
    return y, AvgPoolCache(x.shape, windows)


def avg_pool2d_backward_cuda(dy, cache):
    dy, dx = contiguous(dy), array_module(dy).empty(cache.shape, dy.dtype)
    launch("avg_pool_backward", (dy, dx, 1 / prod(cache.windows.kernel)), dx.size, cache.windows)
    return dx


def launch(name, arguments, count, windows):
    """A kernel with a thread for each of `count` numbers."""
    sizes = *(side for sides in windows for side in sides), *windows.grid
    SOURCE.launch(name, blocks(count, BLOCK), BLOCK, *arguments, count, *sizes, T=type_of(arguments[0]))


def global_avg_pool2d_cuda(x):
    if x.ndim != 4 or not x.shape[2] * x.shape[3]:
        return global_avg_pool2d.reference(x)  # raises
    x, y, S = contiguous(x), array_module(x).empty(x.shape[:2], x.dtype), x.shape[2] * x.shape[3]
    SOURCE.launch("map_means", blocks(y.size, WARPS), BLOCK, x, y, 1 / S, y.size, S, T=type_of(x))
    return y, GlobalAvgPoolCache(x.shape)


def global_avg_pool2d_backward_cuda(dy, cache):
    dy, dx, S = contiguous(dy), array_module(dy).empty(cache.shape, dy.dtype), cache.shape[2] * cache.shape[3]
    SOURCE.launch("spread_over_maps", blocks(dx.size, BLOCK), BLOCK, dy, dx, 1 / S, dx.size, S, T=type_of(dy))
    return dx


for kind in KINDS:
    max_pool2d.register(kind, max_pool2d_cuda)
    max_pool2d_backward.register(kind, max_pool2d_backward_cuda)
    avg_pool2d.register(kind, avg_pool2d_cuda)
    avg_pool2d_backward.register(kind, avg_pool2d_backward_cuda)
    global_avg_pool2d.register(kind, global_avg_pool2d_cuda)
    global_avg_pool2d_backward.register(kind, global_avg_pool2d_backward_cuda)
