"""Convolutions by cuBLAS: the columns of some images are filled, multiplied with the filters, and used again.

The columns of some images have at most half of the numbers of x and y together, or MIN_COLUMN_NUMBERS, as far as a
single image allows; none are kept for the backward. A convolution of 1 × 1 pixels is a product of the images as they
are; a depthwise one has kernels of its own.
"""

from math import prod

from tinyvit.arrays import array_module
from tinyvit.functional.batchnorm import sum_per_channel
from tinyvit.functional.conv import ConvCache, check_cache, checked_windows, conv2d, conv2d_backward
from tinyvit.kernels.cuda import depthwise
from tinyvit.kernels.cuda.products import multiply, multiply_batches
from tinyvit.kernels.cuda.source import KINDS, TYPED, Source, blocks, contiguous, run_reference, type_of
from tinyvit.kernels.cuda.through_float32 import up

SOURCE = Source("conv.cu", TYPED)
BLOCK = 256
MIN_COLUMN_NUMBERS, MAX_COLUMN_NUMBERS = 1 << 22, 1 << 24  # that the columns may have in any case, and at most
MIN_WIDE_PIXELS = 32  # from which on a product of each image alone is worth it


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
    else:
        for images, columns, results in pieces(x, weight, windows, groups):
            fill(x[images], columns, windows)
            product(in_groups(weight, groups), columns, results)
            move(as_images(results, y[images]), y[images], bias)
    return y, ConvCache(x, weight, bias is not None, groups, windows)


def conv2d_backward_cuda(dy, cache, into, inputs=True):
    """As `functional.conv2d_backward`, but a frozen weight (False in `into`) costs no product, and neither does the
    gradient of x without `inputs`."""
    check_cache(cache)
    x, weight, has_bias, groups, windows = cache
    if not dy.dtype == x.dtype == weight.dtype:
        return run_reference(conv2d_backward, dy, cache)
    dy, x, weight = contiguous(dy), contiguous(x), contiguous(weight)
    if is_depthwise(weight, groups):
        dx = depthwise.gradient_of_images(dy, x, weight, windows) if inputs else None
        frozen = into[0] is False
        dweight = None if frozen else depthwise.gradient_of_filters(dy, x, weight, windows, into[0])
    else:
        dx, dweight = gradients(dy, x, weight, windows, groups, into[0], inputs)
    if not has_bias:
        return dx, dweight
    return dx, dweight, None if into[1] is False else sum_per_channel(up(dy))


def gradients(dy, x, weight, windows, groups, into, inputs):
    filters, alone = in_groups(weight, groups), is_pointwise(windows)
    dx = array_module(x).empty(x.shape, x.dtype) if inputs else None
    dweight, by_columns = goal_for(weight, into), inputs and not alone
    if inputs and alone:
        multiply_images(filters.mT, dy, dx)
    for images, columns, results in pieces(x, weight, windows, groups) if dweight is not None or by_columns else ():
        move(dy[images], as_images(results, dy[images]))
        if dweight is not None:
            fill(x[images], columns, windows)
            product(results, columns.mT, in_groups(dweight, groups), beta=1.0)
        if by_columns:
            product(filters.mT, results, columns)
            gather(columns, dx[images], windows)
    return dx, dweight


def goal_for(weight, into):
    """The array that the gradient of `weight` is added up in: `into`, if cuBLAS can write there, a new one, or None."""
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
    return of_one and prod(windows.image) >= MIN_WIDE_PIXELS


def in_groups(weight, groups):
    """Filters (O, C/G, P, Q) as matrices (G, O/G, C/G·P·Q): a row per filter."""
    return weight.reshape(groups, len(weight) // groups, -1)


def pieces(x, weight, windows, groups):
    """(images, columns (G, K, n·H'·W'), results (G, O/G, n·H'·W')) for n images at a time.

    Columns and results are memory that all of them share, K = C/G·P·Q.
    """
    xp, pixels = array_module(x), prod(windows.grid)
    length, filters = x.shape[1] * prod(windows.kernel), len(weight)
    allowed = min(MAX_COLUMN_NUMBERS, max(MIN_COLUMN_NUMBERS, (x.size + len(x) * filters * pixels) // 2))
    images = max(1, allowed // ((length + filters) * pixels))
    images = max(1, blocks(len(x), max(1, blocks(len(x), images))))            # of equal size as far as possible
    columns, results = (xp.empty(side * images * pixels, x.dtype) for side in (length, filters))
    for first in range(0, len(x), images):
        count = min(images, len(x) - first) * pixels
        yield slice(first, first + images), *(
            memory[: side * count].reshape(groups, side // groups, count)
            for memory, side in ((columns, length), (results, filters))
        )


def as_images(results, like):
    """Results (G, O/G, n·H'·W') as a view (n, O, H', W'), of the shape of `like`."""
    n, filters, *sides = like.shape
    return results.reshape(filters, n, *sides).transpose(1, 0, 2, 3)


def fill(x, columns, windows):
    """Write the columns of the windows on images x (n, C, H, W)."""
    count = x.shape[1] * columns.shape[-1]
    SOURCE.launch("conv_fill", blocks(count, BLOCK), BLOCK, x, columns, *x.shape[:2], *sizes(windows), T=type_of(x))


def gather(columns, dx, windows):
    """Add up the gradients of columns in those of the images, dx (n, C, H, W)."""
    grid = blocks(dx.size, BLOCK)
    SOURCE.launch("conv_gather", grid, BLOCK, columns, dx, *dx.shape[:2], *sizes(windows), T=type_of(dx))


def sizes(windows):
    return *(side for sides in windows for side in sides), *windows.grid


def move(source, goal, bias=None):
    """goal = source + bias, for maps (n, O, H', W') whose pixels follow one another."""
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
