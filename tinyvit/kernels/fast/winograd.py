"""Convolutions with filters of 3×3 by fewer products: Winograd's F(2×2, 3×3).

A tile d of 4×4 pixels and a filter g give 2×2 results, with 16 products in place of 36:

    y = Aᵀ ((G g Gᵀ) ⊙ (Bᵀ d B)) A    Bᵀ: d₀ − d₂, d₁ + d₂, d₂ − d₁, d₁ − d₃    Aᵀ: m₀ + m₁ + m₂, m₁ − m₂ − m₃

Tiles begin at every other pixel. Added up over the channels, each of the 16 is a matrix product of filters and tiles.
All maps around it are linear, so the gradient of g takes their transposes: Gᵀ ((A dy Aᵀ) ⊙ (Bᵀ d B)) G. Lavin & Gray
2016, "Fast algorithms for convolutional neural networks", section 4.1.
"""

from math import prod

import numpy as np

from tinyvit.kernels.fast.compiled import INDEX, INPUT, OUTPUT, array, as_contiguous, jit

MIN_CHANNELS = 32         # channels, and filters; with fewer, tiles take longer than their products save
IMAGES = 16        # in a piece at least: they are the innermost axis of tiles, so that instructions take several
TILES = 512        # in a piece; fewer make products too thin
NUMBERS = 1 << 20  # in the tiles of a piece and their results: 4 MiB, so that they stay in the cache

# Each row of Bᵀ d, and of A dy, is made of two rows: which, and with which factors.
IMAGES_TO_TILES = np.array([[0, 2], [1, 2], [2, 1], [1, 3]]), np.array([[1, -1], [1, 1], [1, -1], [1, -1]], "float32")
GRADIENTS_TO_TILES = np.array([[0, 1]] * 4), np.array([[1, 0], [1, 1], [1, -1], [0, -1]], "float32")
# G of both sides at once, for filters as rows of 9 numbers.
G = np.kron(*[np.array([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]], "float32")] * 2)


@jit(INPUT("b C H W"), *[INDEX] * 3, array("4 2", INDEX, readonly=True), INPUT("4 2"),
          OUTPUT("4 4 C rows columns b"))  # fmt: skip
def transform(x, first, above, left, places, factors, tiles):
    """The tiles of images in rows from `first` on: Bᵀ d B, or A dy Aᵀ, as `places` and `factors` say.

    The images have that much padding above and on the left, and behind them as much as the last tiles need.
    """
    B, C, H, W = x.shape
    rows, columns = tiles.shape[3:5]
    height, width = 2 * rows + 2, 2 * columns + 2
    plane, line = np.zeros((height, width * B), np.float32), np.empty(width * B, np.float32)
    top = 2 * first - above
    start, stop, count = max(0, -top), min(height, H - top), min(W, width - left)
    for c in range(C):
        for i in range(start, stop):
            for b in range(B):
                pixels, goal = x[b, c, top + i], plane[i, left * B + b :]
                for j in range(count):
                    goal[np.uint64(j * B)] = pixels[j]
        for i in range(rows):
            for p in range(4):
                one, other = plane[2 * i + places[p, 0]], plane[2 * i + places[p, 1]]
                f, g = factors[p]
                for k in range(line.size):
                    line[k] = f * one[k] + g * other[k]
                for q in range(4):
                    f, g = factors[q]
                    for j in range(columns):
                        one, other = line[(2 * j + places[q, 0]) * B :], line[(2 * j + places[q, 1]) * B :]
                        goal = tiles[p, q, c, i, j]
                        for b in range(B):
                            goal[b] = f * one[b] + g * other[b]


@jit(INPUT("4 4 filters rows columns b"), INDEX, OUTPUT("b filters H W"))
def results(m, first, y):
    """y = Aᵀ m A for the tiles in rows from `first` on."""
    rows, columns, B = m.shape[3:]
    filters, H, W = y.shape[1:]
    plane, line = np.empty((2, 2 * columns * B), np.float32), np.empty((2, 4, B), np.float32)
    for o in range(filters):
        for i in range(rows):
            for j in range(columns):
                for q in range(4):
                    m0, m1, m2, m3 = m[0, q, o, i, j], m[1, q, o, i, j], m[2, q, o, i, j], m[3, q, o, i, j]
                    upper, lower = line[0, q], line[1, q]
                    for b in range(B):
                        upper[b] = m0[b] + m1[b] + m2[b]
                    for b in range(B):
                        lower[b] = m1[b] - m2[b] - m3[b]
                for a in range(2):
                    n0, n1, n2, n3 = line[a, 0], line[a, 1], line[a, 2], line[a, 3]
                    one, other = plane[a, 2 * j * B :], plane[a, (2 * j + 1) * B :]
                    for b in range(B):
                        one[b] = n0[b] + n1[b] + n2[b]
                    for b in range(B):
                        other[b] = n1[b] - n2[b] - n3[b]
            for a in range(min(2, H - 2 * (first + i))):
                for b in range(B):
                    goal = y[b, o, 2 * (first + i) + a]
                    for j in range(W):
                        goal[j] = plane[a, np.uint64(j * B + b)]


def fits(x, weight, windows, groups):
    """Whether these kernels can compute a convolution, and are faster than columns."""
    alike = (windows.kernel, windows.stride, groups) == ((3, 3), (1, 1), 1)
    return alike and len(x) >= IMAGES and min(weight.shape[:2]) >= MIN_CHANNELS


def pieces(count, grid, channels):
    """(images, first row of tiles, memory for the tiles of each of `channels`) for each piece of the work."""
    rows, columns = (-(-side // 2) for side in grid)
    most = max(IMAGES, min(TILES, NUMBERS // (16 * sum(channels))))             # tiles in a piece
    images = max(IMAGES, most // (rows * columns))
    parts = -(-rows // max(1, most // (images * columns)))
    height = -(-rows // parts)                                                 # of rows of tiles, in parts of one size
    memory = [np.empty(16 * c * height * columns * min(images, count), "float32") for c in channels]
    for start in range(0, count, images):
        for first in range(0, rows, height):
            shape = min(height, rows - first), columns, min(images, count - start)
            yield slice(start, start + images), first, *(
                part[: 16 * c * prod(shape)].reshape(4, 4, c, *shape) for c, part in zip(channels, memory)
            )


def as_matrices(tiles):
    """Tiles (4, 4, C, rows, columns, b) as (16, C, rows·columns·b): a matrix for each of their 16 numbers."""
    return tiles.reshape(16, tiles.shape[2], -1)


def convolve(x, weight, windows):
    """y (B, O, H', W') of images x (B, C, H, W) and filters (O, C, 3, 3)."""
    x, (filters, C) = as_contiguous(x), weight.shape[:2]
    y, u = np.empty((len(x), filters, *windows.grid), "float32"), (G @ weight.reshape(-1, 9).T).reshape(16, filters, C)
    for images, first, tiles, products in pieces(len(x), windows.grid, (C, filters)):
        transform(x[images], first, *windows.padding, *IMAGES_TO_TILES, tiles)
        np.matmul(u, as_matrices(tiles), out=as_matrices(products))
        results(products, first, y[images])
    return y


def gradient_of_filters(dy, x, windows):
    """dweight (O, C, 3, 3) from dy (B, O, H', W') and images x (B, C, H, W)."""
    dy, x, filters, C = as_contiguous(dy), as_contiguous(x), dy.shape[1], x.shape[1]
    du = np.zeros((16, filters, C), "float32")
    for images, first, tiles, dtiles in pieces(len(x), windows.grid, (C, filters)):
        transform(x[images], first, *windows.padding, *IMAGES_TO_TILES, tiles)
        transform(dy[images], first, 0, 0, *GRADIENTS_TO_TILES, dtiles)
        du += as_matrices(dtiles) @ as_matrices(tiles).mT
    return (du.reshape(16, -1).T @ G).reshape(filters, C, 3, 3)
