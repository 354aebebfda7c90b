"""Pooling, window by window."""

import numpy as np

from tinyvit.functional.pooling import (
    AvgPoolCache,
    MaxPoolCache,
    avg_pool2d,
    avg_pool2d_backward,
    max_pool2d,
    max_pool2d_backward,
    pooling_windows,
)
from tinyvit.kernels.fast.compiled import INDEX, INPUT, OUTPUT, array, as_contiguous, inline, jit, types
from tinyvit.kernels.fast.exp import F

ZERO = F(0.0)
SIZES = [INDEX] * 6  # of the kernel, from a window to the next, and of the padding above and on the left


@inline()
def first_and_end(first, size, side):
    """The pixels of a window that are inside the image, along one side: from, to, and how many were before."""
    return max(first, 0), min(first + size, side), max(-first, 0)


@jit(INPUT("maps H W"), *SIZES, OUTPUT("maps rows columns"), array("maps rows columns", types.int32))
def largest(x, P, Q, down, right, above, left, y, place):
    """The largest number of each window and its place; NaN counts as the largest, of equal numbers the first."""
    maps, rows, columns = y.shape
    for m in range(maps):
        for i in range(rows):
            top, bottom, p = first_and_end(down * i - above, P, x.shape[1])
            for j in range(columns):
                start, stop, q = first_and_end(right * j - left, Q, x.shape[2])
                best, where = F(-np.inf), 0
                for r in range(top, bottom):
                    for c in range(start, stop):
                        value = x[m, r, c]
                        if value > best or value != value or (r == top and c == start):
                            best, where = value, (p + r - top) * Q + q + c - start
                y[m, i, j], place[m, i, j] = best, where


@jit(INPUT("maps rows columns"), array("maps rows columns", types.int32, readonly=True), *SIZES,
     OUTPUT("maps H W"))  # fmt: skip
def to_the_largest(dy, place, P, Q, down, right, above, left, dx):
    maps, rows, columns = dy.shape
    for m in range(maps):
        dx[m] = ZERO
        for i in range(rows):
            for j in range(columns):
                r = down * i - above + place[m, i, j] // Q
                c = right * j - left + place[m, i, j] % Q
                if 0 <= r < dx.shape[1] and 0 <= c < dx.shape[2]:
                    dx[m, r, c] += dy[m, i, j]


@jit(INPUT("maps H W"), *SIZES, OUTPUT("maps rows columns"))
def mean(x, P, Q, down, right, above, left, y):
    maps, rows, columns = y.shape
    share = F(1.0) / F(P * Q)
    for m in range(maps):
        for i in range(rows):
            top, bottom, _ = first_and_end(down * i - above, P, x.shape[1])
            for j in range(columns):
                start, stop, _ = first_and_end(right * j - left, Q, x.shape[2])
                total = ZERO
                for r in range(top, bottom):
                    for c in range(start, stop):
                        total += x[m, r, c]
                y[m, i, j] = total * share


@jit(INPUT("maps rows columns"), *SIZES, OUTPUT("maps H W"))
def to_all(dy, P, Q, down, right, above, left, dx):
    maps, rows, columns = dy.shape
    share = F(1.0) / F(P * Q)
    for m in range(maps):
        dx[m] = ZERO
        for i in range(rows):
            top, bottom, _ = first_and_end(down * i - above, P, dx.shape[1])
            for j in range(columns):
                start, stop, _ = first_and_end(right * j - left, Q, dx.shape[2])
                for r in range(top, bottom):
                    for c in range(start, stop):
                        dx[m, r, c] += dy[m, i, j] * share


def flat(x):
    """Images x (B, C, H, W) as (B·C, H, W)."""
    return as_contiguous(x).reshape(-1, *x.shape[2:])


def sizes(windows):
    return *windows.kernel, *windows.stride, *windows.padding


def max_pool2d_fast(x, kernel_size, stride=None, padding=0):
    windows = pooling_windows("max_pool2d", x, kernel_size, stride, padding)
    shape = *x.shape[:2], *windows.grid
    y, place = np.empty(shape, "float32"), np.empty(shape, "int32")
    largest(flat(x), *sizes(windows), flat(y), flat(place))
    return y, MaxPoolCache(place, windows)


def max_pool2d_backward_fast(dy, cache):
    dx = np.empty((*dy.shape[:2], *cache.windows.image), "float32")
    to_the_largest(flat(dy), flat(cache.place), *sizes(cache.windows), flat(dx))
    return dx


def avg_pool2d_fast(x, kernel_size, stride=None, padding=0):
    windows = pooling_windows("avg_pool2d", x, kernel_size, stride, padding)
    y = np.empty((*x.shape[:2], *windows.grid), "float32")
    mean(flat(x), *sizes(windows), flat(y))
    return y, AvgPoolCache(x.shape, windows)


def avg_pool2d_backward_fast(dy, cache):
    dx = np.empty(cache.shape, "float32")
    to_all(flat(dy), *sizes(cache.windows), flat(dx))
    return dx


max_pool2d.register(("numpy", "float32"), max_pool2d_fast, "fast")
max_pool2d_backward.register(("numpy", "float32"), max_pool2d_backward_fast, "fast")
avg_pool2d.register(("numpy", "float32"), avg_pool2d_fast, "fast")
avg_pool2d_backward.register(("numpy", "float32"), avg_pool2d_backward_fast, "fast")
