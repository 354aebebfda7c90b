"""Convolutions by NumPy: a few images at a time, or some rows of a large one, as columns for one matrix product.

A column has the numbers of a window, in the order of a filter. The columns of a piece are few enough for the cache; the
backward makes them again, so that none are kept.
"""

from math import prod

import numpy as np

from tinyvit.functional.batchnorm import per_channel, sum_per_channel
from tinyvit.functional.conv import ConvCache, check_cache, checked_windows, conv2d, conv2d_backward

COLUMNS = 1024     # in a piece; fewer make products too thin
NUMBERS = 1 << 21  # in the columns of a piece: 8 MiB in float32


class Columns:
    """The columns (G, C/G·P·Q, n·rows·W') of a piece, in memory that all pieces share."""

    def __init__(self, x, windows, groups, images, rows, memory):
        shape = x.shape[1], *windows.kernel, images, rows.stop - rows.start, windows.grid[1]
        self.images, self.rows = images, rows
        self.array = memory[: prod(shape)].reshape(shape)                      # (C, P, Q, n, rows, W')
        self.array[...] = 0  # the padding, which stays as it is
        self.as_matrix = groups, prod(shape[:3]) // groups, -1
        self.prepare(windows)

    def prepare(self, windows):
        """Find for each place in a filter which windows have a pixel there, and which pixels those are."""
        self.places = []
        for row, column in windows.offsets():
            below, image_rows = inside(windows, 0, row, self.rows)
            beside, image_columns = inside(windows, 1, column, slice(0, windows.grid[1]))
            self.places.append((row, column, (..., below, beside), (..., image_rows, image_columns)))

    def fill(self, x):
        """The columns of images x (n, C, H, W)."""
        x = x.transpose(1, 0, 2, 3)
        for row, column, windows, image in self.places:
            self.array[:, row, column][windows] = x[image]
        return self.array.reshape(self.as_matrix)

    def add(self, dcolumns, dx):
        """Add the gradients of the columns to those of the images, dx (n, C, H, W)."""
        dcolumns, dx = dcolumns.reshape(self.array.shape), dx.transpose(1, 0, 2, 3)
        for row, column, windows, image in self.places:
            dx[image] += dcolumns[:, row, column][windows]


def conv2d_in_pieces(x, weight, bias=None, stride=1, padding=0, groups=1, columns=Columns):
    windows = checked_windows(x, weight, bias, stride, padding, groups)
    if not (x.size and x.dtype == weight.dtype and (bias is None or bias.dtype == x.dtype)):
        return conv2d.reference(x, weight, bias, stride, padding, groups)
    y = convolve(x, weight, windows, groups, columns)
    if bias is not None:
        y += per_channel(bias, y)
    return y, ConvCache(x, weight, bias is not None, groups, windows)


def conv2d_backward_in_pieces(dy, cache, into, inputs=True, columns=Columns):
    """As `functional.conv2d_backward`, but a frozen weight (False in `into`) costs no matrix product, and neither does
    the gradient of x without `inputs`.

    Columns of dy, which dx takes as a convolution, are longer than those of x where it has fewer channels, as images.
    """
    check_cache(cache)
    x, weight, has_bias, groups, windows = cache
    if not (x.size and x.dtype == weight.dtype == dy.dtype):
        return conv2d_backward.reference(dy, cache)
    wanted, flipped, dx = into[0] is not False, None, None
    if inputs:
        flipped = windows_of_dx(windows) if 4 * x.shape[1] >= len(weight) else None
        dx = convolve(dy, flip(weight, groups), flipped, groups, columns) if flipped else np.zeros(x.shape, x.dtype)
    by_columns = inputs and not flipped
    filters = as_rows(weight, groups)
    dfilters = np.zeros(filters.shape, x.dtype)
    for images, rows, scratch in pieces(x, windows, groups, columns) if wanted or by_columns else ():
        dcolumns = dy[images, :, rows].transpose(1, 0, 2, 3).reshape(groups, filters.shape[1], -1)
        if wanted:
            dfilters += dcolumns @ scratch.fill(x[images]).mT
        if by_columns:
            scratch.add(filters.mT @ dcolumns, dx[images])
    dweight = dfilters.reshape(weight.shape) if wanted else None
    if not has_bias:
        return dx, dweight
    return dx, dweight, None if into[1] is False else sum_per_channel(dy)


def convolve(x, weight, windows, groups, columns):
    y, filters = np.empty((len(x), len(weight), *windows.grid), x.dtype), as_rows(weight, groups)
    for images, rows, scratch in pieces(x, windows, groups, columns):
        piece = y[images, :, rows].transpose(1, 0, 2, 3)                       # (O, n, rows, W')
        piece[...] = (filters @ scratch.fill(x[images])).reshape(piece.shape)
    return y


def as_rows(weight, groups):
    """Filters (O, C/G, P, Q) as (G, O/G, C/G·P·Q): a row per filter."""
    return weight.reshape(groups, len(weight) // groups, -1)


def windows_of_dx(windows):
    """The windows of the convolution of dy that gives dx, or None: at stride 1, dx is one with flipped filters."""
    margins = tuple(side - 1 - margin for side, margin in zip(windows.kernel, windows.padding))
    if windows.stride != (1, 1) or min(margins) < 0:
        return None
    return windows._replace(image=windows.grid, padding=margins)


def flip(weight, groups):
    """Filters (O, C/G, P, Q) turned by 180°, with inputs and outputs exchanged: (C, O/G, P, Q)."""
    turned = weight[..., ::-1, ::-1].reshape(groups, len(weight) // groups, *weight.shape[1:]).swapaxes(1, 2)
    return turned.reshape(-1, *turned.shape[2:])


def pieces(x, windows, groups, columns):
    """(images, rows of windows, their `columns`) for each piece of the work; the slices cover the batch."""
    (rows, width), length = windows.grid, x.shape[1] * prod(windows.kernel)
    most = max(1, min(COLUMNS, NUMBERS // length))                             # columns in a piece
    images, height = max(1, most // (rows * width)), min(rows, max(1, most // width))
    scratch, memory = None, np.empty(length * min(images, len(x)) * height * width, x.dtype)
    for first in range(0, len(x), images):
        n = min(images, len(x) - first)
        for top in range(0, rows, height):
            part = slice(top, min(top + height, rows))
            if scratch is None or (n, part) != (scratch.images, scratch.rows):
                scratch = columns(x, windows, groups, n, part, memory)
            yield slice(first, first + n), part, scratch


def inside(windows, axis, offset, part):
    """Which of a part of the windows have a pixel at this offset, counted from the part's first, and which pixels."""
    side, stride, first = windows.image[axis], windows.stride[axis], offset - windows.padding[axis]
    start = max(part.start, -(first // stride))
    stop = max(start, min(part.stop, (side - 1 - first) // stride + 1))
    pixels = slice(stride * start + first, stride * stop + first - stride + 1, stride) if stop > start else slice(0, 0)
    return slice(start - part.start, stop - part.start), pixels


for dtype in ("float32", "float64", "complex128"):
    conv2d.register(("numpy", dtype), conv2d_in_pieces)
    conv2d_backward.register(("numpy", dtype), conv2d_backward_in_pieces)
