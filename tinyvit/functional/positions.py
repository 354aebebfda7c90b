"""Positions that are added to the tokens: learned, learned along each axis, and sines and cosines.

All are (1, P+N, D): those of the P prefix tokens (a class token, say), which are zero where the positions are computed,
then one for each of the N patches of the grid.
"""

from numbers import Integral
from typing import Any, NamedTuple

import numpy as np

from tinyvit.arrays import array_module
from tinyvit.backend import device_of
from tinyvit.dispatch import backward_of, operation
from tinyvit.functional.interpolation import INTERPOLATIONS, matrix_on
from tinyvit.functional.sums import sum_first


class AddPositionsCache(NamedTuple):
    shape: tuple  # (B, N, D) of the tokens


@operation(arrays="x positions")
def add_positions(x, positions):
    """Add `positions` (1, N, D) to the tokens `x` (B, N, D) of every sample. Dosovitskiy et al. 2021, eq. 1."""
    if positions.shape != (1, *x.shape[1:]):
        raise ValueError(f"add_positions: expected positions {(1, *x.shape[1:])}, got {positions.shape}")
    return x + positions, AddPositionsCache(x.shape)


@backward_of(
    add_positions, result=lambda cache: cache.shape, parameters=lambda cache: [(1, *cache.shape[1:])]
)
def add_positions_backward(dy, cache):
    """Returns (dx, dpositions): every sample had the same positions, so their gradient is the sum over samples."""
    return dy, sum_first(dy)[None]


class GridPositionsCache(NamedTuple):
    grid: tuple   # (rows, columns) of patches
    shape: tuple  # (1, P + rows·columns, D) of the result


def axes_shapes(cache):
    """The shapes of `along_x` and `along_y`."""
    (rows, columns), half = cache.grid, cache.shape[2] // 2
    return (1, columns, half), (1, rows, half)


@operation(arrays="along_x along_y")
def grid_positions(along_x, along_y, prefix=1):
    """The position of the patch in row i, column j is column j of `along_x` beside row i of `along_y`.

    along_x (1, columns, D/2) and along_y (1, rows, D/2) give (1, P + rows·columns, D), zero for the P prefix tokens.
    Dosovitskiy et al. 2021, appendix D.4, "2-dimensional positional embedding".
    """
    x, y = along_x.shape, along_y.shape
    if not len(x) == len(y) == 3 or x[0] != 1 or y[0] != 1 or x[2] != y[2]:
        raise ValueError(f"grid_positions: expected (1, columns, D/2) and (1, rows, D/2), got {x} and {y}")
    xp = array_module(along_x)
    columns, rows, half = along_x.shape[1], along_y.shape[1], along_x.shape[2]
    positions = xp.zeros((1, prefix + rows * columns, 2 * half), xp.result_type(along_x, along_y))
    grid = positions[:, prefix:].reshape(rows, columns, 2 * half)  # a view: the prefix tokens' rows come before it
    grid[:, :, :half] = along_x
    grid[:, :, half:] = along_y.reshape(rows, 1, half)
    return positions, GridPositionsCache((rows, columns), positions.shape)


@backward_of(grid_positions, result=lambda cache: cache.shape, parameters=axes_shapes)
def grid_positions_backward(dy, cache):
    """Returns (dalong_x, dalong_y): each was used by a whole column, or row, of patches."""
    rows, columns = cache.grid
    half = dy.shape[-1] // 2
    dgrid = dy[:, -rows * columns :].reshape(rows, columns, 2 * half)
    return dgrid[:, :, :half].sum(0)[None], dgrid[:, :, half:].sum(1)[None]


class ResizePositionsCache(NamedTuple):
    grid: tuple    # (rows, columns) that the positions were for
    down: Any      # (rows', rows)        how much of each row goes into each new one
    across: Any    # (columns', columns)
    shape: tuple   # (1, P + rows·columns, D) that they had
    prefix: int    # P


def resized_shape(cache):
    return 1, cache.prefix + len(cache.down) * len(cache.across), cache.shape[2]


@operation
def resize_positions(positions, grid, new_grid, method="bilinear", prefix=1):
    """Positions (1, P + rows·columns, D) of a grid of patches, for images with another: (1, P + rows'·columns', D).

    The P prefix tokens keep theirs. Dosovitskiy et al. 2021, section 3.2. What the methods are, and whose:

        "bilinear"   linear between the centres of patches, and constant beyond the outermost; PyTorch's
                     interpolate(mode="bilinear", align_corners=False)
        "bicubic"    cubic between the centres, with a = −0.75; PyTorch's interpolate(mode="bicubic",
                     align_corners=False), which Hugging Face's ViT takes. timm antialiases, with a = −0.5
        "zoom"       linear between outermost centres that stay where they are; scipy.ndimage.zoom(order=1), which the
                     paper's code takes

    Raises ValueError for positions that don't fit their grid, for a grid that is no
    pair of positive ints, and for a method that isn't one of these.
    """
    if method not in INTERPOLATIONS:
        raise ValueError(f"resize_positions: expected a method of {', '.join(INTERPOLATIONS)}, got {method!r}")
    for name, pair in (("grid", grid), ("new_grid", new_grid)):
        if not (isinstance(pair, (tuple, list)) and len(pair) == 2
                and all(isinstance(side, Integral) and side > 0 for side in pair)):  # fmt: skip
            raise ValueError(f"resize_positions: expected {name} as two positive ints (rows, columns), got {pair!r}")
    rows, columns = grid
    if positions.shape[:2] != (1, prefix + rows * columns):
        raise ValueError(
            f"resize_positions: expected (1, {prefix + rows * columns}, D) for a grid of {rows}×{columns} and "
            f"{prefix} prefix token{'s' * (prefix != 1)}, got {positions.shape}"
        )
    xp, device, dtype = array_module(positions), device_of(positions), positions.real.dtype
    down, across = (matrix_on(device, method, *sides, dtype) for sides in zip(grid, new_grid))
    resized = (down @ positions[0, prefix:].reshape(rows, -1)).reshape(len(down), columns, -1)   # (rows', columns, D)
    resized = (across @ resized).reshape(1, -1, positions.shape[-1])                        # (1, rows'·columns', D)
    cache = ResizePositionsCache(grid, down, across, positions.shape, prefix)
    return xp.concatenate([positions[:, :prefix], resized], axis=1), cache


@backward_of(resize_positions, result=resized_shape, parameters=lambda cache: [cache.shape])
def resize_positions_backward(dy, cache):
    """The gradient of two matrix products: two products with the transposes."""
    (rows, columns), down, across, _, prefix = cache
    dgrid = across.T @ dy[0, prefix:].reshape(len(down), len(across), -1)                        # (rows', columns, D)
    dgrid = (down.T @ dgrid.reshape(len(down), -1)).reshape(1, rows * columns, -1)
    return array_module(dy).concatenate([dy[:, :prefix], dgrid], axis=1)


def sincos(coordinates, width, base=10000.0):
    """Sines, then cosines, of coordinates (N,) at width/2 frequencies base^(−i/(width/2)): (N, width).

    Vaswani et al. 2017, section 3.5, with the sines in front as in MAE (He et al. 2022).
    """
    if width % 2:
        raise ValueError(f"sincos: expected an even width, half of it sines and half cosines, got {width}")
    frequencies = base ** -(np.arange(width // 2) / (width // 2))
    angles = np.outer(coordinates, frequencies)
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1)


def sincos_1d(grid, dim, prefix=1):
    """Fixed positions by the patch's number, counted row by row: (1, P + rows·columns, D), float64."""
    rows, columns = grid
    return _after_prefix(sincos(np.arange(rows * columns), dim), prefix)


def sincos_2d(grid, dim, prefix=1):
    """Fixed positions, the first half of D for the column x and the second for the row y, as in MAE.

    (1, P + rows·columns, D), float64; D must be a multiple of 4.
    """
    if dim % 4:
        raise ValueError(f"sincos_2d: expected a width divisible by 4, got {dim}")
    rows, columns = grid
    y, x = np.divmod(np.arange(rows * columns), columns)
    return _after_prefix(np.concatenate([sincos(x, dim // 2), sincos(y, dim // 2)], axis=1), prefix)


def sincos_3d(grid, dim, prefix=1):
    """Fixed positions of tubelets, a third of D each for the column x, the row y and the frame t.

    grid (t, rows, columns) gives (1, P + t·rows·columns, D), float64; D must be a multiple of 6.
    """
    if dim % 6:
        raise ValueError(f"sincos_3d: expected a width divisible by 6, got {dim}")
    t, y, x = (axis.ravel() for axis in np.indices(grid))
    return _after_prefix(np.concatenate([sincos(axis, dim // 3) for axis in (x, y, t)], axis=1), prefix)


def _after_prefix(positions, prefix):
    return np.concatenate([np.zeros((prefix, positions.shape[1])), positions])[None]
