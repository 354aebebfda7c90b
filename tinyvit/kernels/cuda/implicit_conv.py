"""Convolutions on tensor cores that gather their columns into shared memory, in bfloat16 and float16.

Columns in memory are written and read once each, P·Q numbers for every pixel. cuBLAS multiplies faster than the kernels
here, which pays for that only where there are many filters to multiply each column by.
"""

from math import prod

from tinyvit.backend import array_module
from tinyvit.kernels.cuda.column_sums import add_partial_sums
from tinyvit.kernels.cuda.source import Source, blocks, has_tensor_cores, type_of

SOURCE = Source("implicit_conv.cu", [{"T": "bfloat16"}, {"T": "float16"}])
BLOCK = 128
ROWS, COLUMNS = 64, 128    # of the results that a block computes
MOST_FILTERS = 256         # of a group. By bytes and peak rates of an H200, columns in memory pay from there on
SHARE, BLOCKS = 1024, 512  # windows that a block adds up for the gradient of filters, at least, and blocks to aim at
LARGEST = 2**31 - 1        # places are C's ints


def supports(x, weight, windows, groups):
    """Whether the kernels here are for a convolution of this kind."""
    few = max(len(weight) // groups, weight.shape[1]) <= MOST_FILTERS
    pixels, results = prod(windows.image), prod(windows.grid)
    most = max(weight.size, len(x) * max(pixels, results), x.shape[1] * pixels, len(weight) * results)
    return few and most <= LARGEST and x.dtype.itemsize == 2 and has_tensor_cores(x)


def forward(x, weight, bias, y, windows, groups):
    """Write the convolution of x (B, C, H, W) with weight (O, C/G, P, Q) to y (B, O, H', W'); all are contiguous."""
    count = len(x) * prod(windows.grid)
    grid = blocks(count, COLUMNS), blocks(len(weight) // groups, ROWS), groups
    launch("implicit_conv_forward", grid, (x, weight, bias, y, count), weight, windows, groups)


def gradient_of_images(dy, x, weight, windows, groups):
    dx = array_module(x).empty(x.shape, x.dtype)
    count = len(x) * prod(windows.image)
    grid = blocks(count, COLUMNS), blocks(weight.shape[1], ROWS), groups
    launch("implicit_conv_dx", grid, (dy, weight, dx, count), weight, windows, groups)
    return dx


def gradient_of_filters(dy, x, weight, windows, groups, into):
    """The gradient of `weight`, of its shape, added to `into` if a kernel can write there."""
    count, length = len(x) * prod(windows.grid), prod(weight.shape[1:])
    grid = blocks(length, COLUMNS), blocks(len(weight) // groups, ROWS)
    share = max(SHARE, blocks(count, max(1, BLOCKS // (prod(grid) * groups))))
    partial = array_module(x).empty((blocks(count, share), weight.size), "float32")
    grid = *grid, groups * len(partial)
    launch("implicit_conv_dweight", grid, (dy, x, partial, count, share, groups), weight, windows, groups)
    return add_partial_sums(partial, weight.shape, into)


def launch(name, grid, arguments, weight, windows, groups):
    sizes = weight.shape[1], len(weight) // groups, *(side for sides in windows for side in sides), *windows.grid
    SOURCE.launch(name, grid, BLOCK, *arguments, *sizes, T=type_of(arguments[0]))
