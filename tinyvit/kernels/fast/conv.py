"""Convolutions by compiled code: of tiles, of columns, and depthwise ones without columns or products."""

import numpy as np

from tinyvit.functional.batchnorm import per_channel, sum_per_channel
from tinyvit.functional.conv import ConvCache, check_cache, checked_windows, conv2d, conv2d_backward
from tinyvit.kernels.conv import Columns, conv2d_backward_in_pieces, conv2d_in_pieces, flip, windows_of_dx
from tinyvit.kernels.fast import winograd
from tinyvit.kernels.fast.compiled import ANY_ORDER, INDEX, INPUT, OUTPUT, TOTAL, as_contiguous, inline, jit
from tinyvit.kernels.fast.exp import F

ZERO = F(0.0)


@inline()
def first_inside(offset, stride):
    """The first window whose pixel at this offset from the image's edge is not before the image."""
    return max(0, -(offset // stride))


@inline()
def end_inside(offset, stride, side, windows):
    """The first window after those whose pixel at this offset is inside the image."""
    return max(0, min(windows, (side - 1 - offset) // stride + 1))


@inline()
def add_scaled(total, factor, x):
    for i in range(total.size):
        total[i] += factor * x[i]


@inline(math=ANY_ORDER)
def dot(x, y):
    total = ZERO
    for i in range(x.size):
        total += x[i] * y[i]
    return total


@jit(INPUT("n C pixels"), *[INDEX] * 8, OUTPUT("C P Q n places"))
def fill(x, H, W, rows, columns, down, right, above, left, array):
    """The pixel at each place (p, q) of each of rows × columns windows; what is outside of the image keeps its zeros.

    The window in row i and column j begins at the pixel (down i − above, right j − left) of H × W.
    """
    C, P, Q, n, _ = array.shape
    whole = down == 1 and right == 1 and rows == H and columns == W
    for c in range(C):
        for p in range(P):
            top, bottom = first_inside(p - above, down), end_inside(p - above, down, H, rows)
            for q in range(Q):
                start, stop = first_inside(q - left, right), end_inside(q - left, right, W, columns)
                count = stop - start
                for b in range(n):
                    pixels, places = x[b, c], array[c, p, q, b]
                    if whole and count > 0:  # all rows in one go, then zeros again where a row ran into the next one
                        shift = (p - above) * W + q - left
                        first, end = top * W + start, (bottom - 1) * W + stop
                        taken, goal = pixels[first + shift : end + shift], places[first:end]
                        for i in range(goal.size):
                            goal[i] = taken[i]
                        for i in range(top, bottom - 1):
                            for j in range(i * W + stop, (i + 1) * W + start):
                                places[j] = ZERO
                        continue
                    for i in range(top, bottom):
                        first = (down * i + p - above) * W + right * start + q - left
                        goal, taken = places[i * columns + start : i * columns + stop], pixels[first:]
                        if right == 1:
                            for j in range(goal.size):
                                goal[j] = taken[j]
                        else:
                            for j in range(goal.size):
                                goal[j] = taken[np.uint64(right * j)]


@jit(INPUT("C P Q n places"), *[INDEX] * 8, OUTPUT("n C pixels"))
def add(array, H, W, rows, columns, down, right, above, left, x):
    """Add each place (p, q) of each window to the pixel that `fill` takes from there."""
    C, P, Q, n, _ = array.shape
    for c in range(C):
        for p in range(P):
            top, bottom = first_inside(p - above, down), end_inside(p - above, down, H, rows)
            for q in range(Q):
                start, stop = first_inside(q - left, right), end_inside(q - left, right, W, columns)
                for b in range(n):
                    for i in range(top, bottom):
                        first = (down * i + p - above) * W + right * start + q - left
                        places, pixels = array[c, p, q, b, i * columns + start : i * columns + stop], x[b, c, first:]
                        for j in range(places.size):
                            pixels[np.uint64(right * j)] += places[j]


class FastColumns(Columns):
    """`Columns` filled, and added to the images, by compiled code."""

    def prepare(self, windows):
        above = windows.padding[0] - windows.stride[0] * self.rows.start
        rows = self.rows.stop - self.rows.start
        self.steps = *windows.image, rows, windows.grid[1], *windows.stride, above, windows.padding[1]
        self.flat = self.array.reshape(*self.array.shape[:4], -1)

    def fill(self, x):
        fill(as_contiguous(x).reshape(*x.shape[:2], -1), *self.steps, self.flat)
        return self.array.reshape(self.as_matrix)

    def add(self, dcolumns, dx):
        add(dcolumns.reshape(self.flat.shape), *self.steps, dx.reshape(*dx.shape[:2], -1))


# Depthwise, an image is padded and its rows joined, so that a shift by (p, q) is one of p · width + q numbers. A result
# has the windows of stride 1, also those that the stride leaves out.


@jit(INPUT("B C H W"), INPUT("C M P Q"), *[INDEX] * 4, OUTPUT("B C M rows columns"))
def depthwise(x, weight, down, right, above, left, y):
    """y = the sum over the places (p, q) of a filter of weight times the pixel there."""
    B, C, M, rows, columns = y.shape
    (H, W), (P, Q) = x.shape[2:], weight.shape[2:]
    height, width = H + 2 * above, W + 2 * left
    padded, total = np.zeros((height, width), np.float32), np.empty(height * width, np.float32)
    flat, length = padded.ravel(), (height - P) * width + width - Q + 1
    for b in range(B):
        for c in range(C):
            for i in range(H):
                padded[above + i, left : left + W] = x[b, c, i]
            for m in range(M):
                total[:length] = ZERO
                for p in range(P):
                    for q in range(Q):
                        add_scaled(total[:length], weight[c, m, p, q], flat[p * width + q :])
                for i in range(rows):
                    goal, found = y[b, c, m, i], total[down * i * width :]
                    for j in range(columns):
                        goal[j] = found[np.uint64(right * j)]


@jit(INPUT("B C M rows columns"), INPUT("B C H W"), INPUT("C M P Q"), *[INDEX] * 4, OUTPUT("B C H W"),
     TOTAL("C M P Q"))  # fmt: skip
def depthwise_backward(dy, x, weight, down, right, above, left, dx, dweight):
    """The gradient of x, and that of the filters added to `dweight`."""
    B, C, M, rows, columns = dy.shape
    (H, W), (P, Q) = x.shape[2:], weight.shape[2:]
    height, width = H + 2 * above, W + 2 * left
    padded, dpadded = np.zeros((height, width), np.float32), np.empty((height, width), np.float32)
    flat, dflat, length = padded.ravel(), dpadded.ravel(), (height - P) * width + width - Q + 1
    spread = np.zeros(height * width, np.float32)  # dy, with zeros where the stride left windows out
    for b in range(B):
        for c in range(C):
            for i in range(H):
                padded[above + i, left : left + W] = x[b, c, i]
            dflat[:] = ZERO
            for m in range(M):
                for i in range(rows):
                    goal, gradients = spread[down * i * width :], dy[b, c, m, i]
                    for j in range(columns):
                        goal[np.uint64(right * j)] = gradients[j]
                for p in range(P):
                    for q in range(Q):
                        shift = p * width + q
                        add_scaled(dflat[shift : shift + length], weight[c, m, p, q], spread)
                        dweight[c, m, p, q] += dot(flat[shift : shift + length], spread)
            for i in range(H):
                dx[b, c, i, :] = dpadded[above + i, left : left + W]


def conv2d_fast(x, weight, bias=None, stride=1, padding=0, groups=1):
    windows = checked_windows(x, weight, bias, stride, padding, groups)
    alike = x.dtype == weight.dtype and (bias is None or bias.dtype == x.dtype)
    if not (x.size and alike):
        return conv2d.reference(x, weight, bias, stride, padding, groups)
    if winograd.fits(x, weight, windows, groups):
        y = winograd.convolve(x, weight, windows)
    elif weight.shape[1] > 1:
        return conv2d_in_pieces(x, weight, bias, stride, padding, groups, FastColumns)
    else:
        y = np.empty((len(x), groups, len(weight) // groups, *windows.grid), "float32")
        depthwise(as_contiguous(x), filters_of(weight, groups), *windows.stride, *windows.padding, y)
        y = y.reshape(len(x), len(weight), *windows.grid)
    if bias is not None:
        y += per_channel(bias, y)
    return y, ConvCache(x, weight, bias is not None, groups, windows)


def conv2d_backward_fast(dy, cache, into, inputs=True):
    check_cache(cache)
    x, weight, has_bias, groups, windows = cache
    alike = x.size and x.dtype == weight.dtype == dy.dtype
    if alike and winograd.fits(x, weight, windows, groups) and (back := windows_of_dx(windows)):
        dx = winograd.convolve(dy, flip(weight, groups), back) if inputs else None
        dweight = None if into[0] is False else winograd.gradient_of_filters(dy, x, windows)
    elif alike and weight.shape[1] == 1:
        filters, dx = filters_of(weight, groups), np.empty(x.shape, "float32")
        dweight, gradients = np.zeros(filters.shape), dy.reshape(len(dy), *filters.shape[:2], *windows.grid)
        depthwise_backward(
            as_contiguous(gradients), as_contiguous(x), filters, *windows.stride, *windows.padding, dx, dweight
        )
        dweight = None if into[0] is False else dweight.astype("float32").reshape(weight.shape)
    else:
        return conv2d_backward_in_pieces(dy, cache, into, inputs, FastColumns)
    if not has_bias:
        return dx, dweight
    return dx, dweight, None if into[1] is False else sum_per_channel(dy)


def filters_of(weight, groups):
    """Filters (C·M, 1, P, Q) of a depthwise convolution as (C, M, P, Q)."""
    return as_contiguous(weight).reshape(groups, len(weight) // groups, *weight.shape[2:])


conv2d.register(("numpy", "float32"), conv2d_fast, "fast")
conv2d_backward.register(("numpy", "float32"), conv2d_backward_fast, "fast")
