"""Convolutions by cuBLAS: the columns of a piece of the work are filled, multiplied with the filters, and used again.

A piece is some images, or some rows of the windows of a large one. What it needs besides x, y and their gradients is
at most half of x and y together, or LEAST numbers; no columns are kept for the backward. A convolution of 1 × 1 pixels
is a product of the images as they are; a depthwise one has kernels of its own, and so have those on tensor cores that
`implicit_conv` supports.
"""

from math import prod

from tinyvit.backend import array_module
from tinyvit.functional.conv import ConvCache, check_cache, checked_windows, conv2d, conv2d_backward
from tinyvit.kernels.cuda import depthwise, implicit_conv
from tinyvit.kernels.cuda.batchnorm import sum_per_channel
from tinyvit.kernels.cuda.products import multiply, multiply_batches
from tinyvit.kernels.cuda.source import KINDS, TYPED, Source, blocks, contiguous, run_reference, type_of

SOURCE = Source("conv.cu", TYPED)
BLOCK = 256
LEAST, MOST = 1 << 22, 1 << 24  # numbers that a piece may have in any case, and at most
WIDE = 32                       # pixels from which on a product of each image alone is worth it


def conv2d_cuda(x, weight, bias=None, stride=1, padding=0, groups=1):
    windows = checked_windows(x, weight, bias, stride, padding, groups)
    if x.dtype != weight.dtype or (bias is not None and bias.dtype != "float32"):
        return run_reference(conv2d, x, weight, bias, stride, padding, groups)
    x, weight, bias = contiguous(x), contiguous(weight), None if bias is None else contiguous(bias)
    y = array_module(x).empty((len(x), len(weight), *windows.grid), x.dtype)
    if is_depthwise(weight, groups):
        depthwise.forward(x, weight, bias, y, windows)
    elif is_pointwise(windows):
        multiply_images(in_groups(weight, groups), x, y)
        if bias is not None:
            move(y, y, bias)
    elif implicit_conv.supports(x, weight, windows, groups):
        implicit_conv.forward(x, weight, bias, y, windows, groups)
    else:
        filters = in_groups(weight, groups)
        for images, rows, columns, results in pieces(x, weight, windows, groups):
            fill(x[images], columns, windows, rows)
            product(filters, columns, results)
            piece = y[images, :, rows]
            move(as_images(results, piece), piece, bias)
    return y, ConvCache(x, weight, bias is not None, groups, windows)


def conv2d_backward_cuda(dy, cache, into, inputs=True):
    """As `functional.conv2d_backward`, but a frozen weight (False in `into`) costs no product, and neither does the
    gradient of x without `inputs`."""
    check_cache(cache)
    x, weight, has_bias, groups, windows = cache
    if not dy.dtype == x.dtype == weight.dtype:
        return run_reference(conv2d_backward, dy, cache)
    dy, x, weight = contiguous(dy), contiguous(x), contiguous(weight)
    dx = dweight = None
    if is_depthwise(weight, groups):
        if inputs:
            dx = depthwise.gradient_of_images(dy, x, weight, windows)
        if into[0] is not False:
            dweight = depthwise.gradient_of_filters(dy, x, weight, windows, into[0])
    elif not is_pointwise(windows) and implicit_conv.supports(x, weight, windows, groups):
        if inputs:
            dx = implicit_conv.gradient_of_images(dy, x, weight, windows, groups)
        if into[0] is not False:
            dweight = implicit_conv.gradient_of_filters(dy, x, weight, windows, groups, into[0])
    else:
        dx, dweight = gradients(dy, x, weight, windows, groups, into[0], inputs)
    return (dx, dweight, sum_per_channel(dy, into[1])) if has_bias else (dx, dweight)


def gradients(dy, x, weight, windows, groups, into, inputs):
    xp, filters, wanted = array_module(x), in_groups(weight, groups), into is not False
    dweight, alone = goal_for(weight, into), is_pointwise(windows)
    dx, by_columns = None, inputs and not alone
    if inputs and alone:
        dx = xp.empty(x.shape, x.dtype)
        multiply_images(filters.mT, dy, dx)
    for images, rows, columns, results in pieces(x, weight, windows, groups) if wanted or by_columns else ():
        piece, whole = dy[images, :, rows], rows == slice(0, windows.grid[0])
        move(piece, as_images(results, piece))
        if wanted:
            fill(x[images], columns, windows, rows)
            product(results, columns.mT, in_groups(dweight, groups), beta=1.0)
        if by_columns:
            if dx is None:
                dx = (xp.empty if whole else xp.zeros)(x.shape, x.dtype)
            product(filters.mT, results, columns)
            gather(columns, dx[images], windows, rows, add=not whole)
    return xp.empty(x.shape, x.dtype) if inputs and dx is None else dx, dweight


def goal_for(weight, into):
    """Where the gradient of `weight` is added up: `into`, if cuBLAS can write there, a new array, or None for False."""
    if into is False:
        return None
    if into is not None and into.dtype == "float32" and into.flags.c_contiguous:
        return into
    return array_module(weight).zeros(weight.shape, "float32")


def is_depthwise(weight, groups):
    return groups > 1 and weight.shape[1] == 1


def is_pointwise(windows):
    """Whether a convolution is a product of the images as they are, of which each has enough pixels for one."""
    of_one = windows.kernel == windows.stride == (1, 1) and windows.padding == (0, 0)
    return of_one and prod(windows.image) >= WIDE


def in_groups(weight, groups):
    """Filters (O, C/G, P, Q) as matrices (G, O/G, C/G·P·Q): a row per filter."""
    return weight.reshape(groups, len(weight) // groups, -1)


def pieces(x, weight, windows, groups):
    """(images, rows of windows, columns (G, K, n·rows·W'), results (G, O/G, n·rows·W')) for each piece of the work.

    Columns and results are memory that all pieces share, K = C/G·P·Q.
    """
    (H, W), xp = windows.grid, array_module(x)
    length, filters = x.shape[1] * prod(windows.kernel), len(weight)
    allowed = min(MOST, max(LEAST, (x.size + len(x) * filters * H * W) // 2))
    most = max(1, allowed // (length + filters))                               # columns in a piece
    images, height = max(1, most // (H * W)), min(H, max(1, most // W))
    images = max(1, blocks(len(x), max(1, blocks(len(x), images))))            # of equal size as far as possible
    columns, results = (xp.empty(side * images * height * W, x.dtype) for side in (length, filters))
    for first in range(0, len(x), images):
        n = min(images, len(x) - first)
        for top in range(0, H, height):
            rows = slice(top, min(top + height, H))
            count = n * (rows.stop - top) * W
            yield slice(first, first + n), rows, *(
                memory[: side * count].reshape(groups, side // groups, count)
                for memory, side in ((columns, length), (results, filters))
            )


def as_images(results, like):
    """Results (G, O/G, n·rows·W') as a view (n, O, rows, W'), of the shape of `like`."""
    n, filters, *sides = like.shape
    return results.reshape(filters, n, *sides).transpose(1, 0, 2, 3)


def fill(x, columns, windows, rows):
    """Write the columns of some rows of the windows on images x (n, C, H, W)."""
    (n, C), count = x.shape[:2], columns.shape[-1]
    sizes = *(side for sides in windows for side in sides), rows.start, rows.stop - rows.start, windows.grid[1]
    SOURCE.launch("conv_fill", blocks(C * count, BLOCK), BLOCK, x, columns, n, C, *sizes, T=type_of(x))


def gather(columns, dx, windows, rows, add):
    """Add up the gradients of columns in those of the images, dx (n, C, H, W), or write them there."""
    (n, C, H, W), height = dx.shape, rows.stop - rows.start
    first, end = 0, H
    if add:  # only the pixels that these windows see
        first = max(0, rows.start * windows.stride[0] - windows.padding[0])
        end = min(H, (rows.stop - 1) * windows.stride[0] - windows.padding[0] + windows.kernel[0])
    sizes = *(side for sides in windows for side in sides), rows.start, height, windows.grid[1]
    count = max(0, end - first)
    SOURCE.launch(
        "conv_gather", blocks(n * C * count * W, BLOCK), BLOCK, columns, dx, n, C, *sizes, first, count, int(add),
        T=type_of(dx),
    )  # fmt: skip


def move(source, goal, bias=None):
    """goal = source + bias, for maps (n, O, rows, W') whose rows follow one another."""
    n, channels, *sides = goal.shape
    strides = (stride // x.itemsize for x in (source, goal) for stride in x.strides[:2])
    arguments = source, goal, bias, n, channels, prod(sides), *strides
    SOURCE.launch("conv_move", blocks(goal.size, BLOCK), BLOCK, *arguments, T=type_of(goal))


def product(a, b, out, beta=0.0):
    """out ← a b + beta · out for each of the groups."""
    if len(out) == 1:
        multiply(a[0], b[0], out[0], beta=beta)
    else:
        multiply_batches(a, b, out, beta=beta)


def multiply_images(filters, x, y):
    """y[b] = filters (G, O/G, C/G) · x[b] for images x (B, C, H, W) and y (B, O, H, W)."""
    groups, *sides = filters.shape
    images = (len(x),) if groups == 1 else (len(x), groups)
    filters = array_module(x).broadcast_to(filters[0] if groups == 1 else filters, (*images, *sides))
    x, y = (maps.reshape(*images, maps.shape[1] // groups, prod(maps.shape[2:])) for maps in (x, y))
    multiply_batches(filters, x, y)


for kind in KINDS:
    conv2d.register(kind, conv2d_cuda)
    conv2d_backward.register(kind, conv2d_backward_cuda)
