"""Windows of tokens, shifted or not, and the masks that keep apart what the shift brought together."""

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from tinyvit.arrays import array_module
from tinyvit.backend import constant
from tinyvit.dispatch import backward_of, operation
from tinyvit.functional.patches import as_pair
from tinyvit.functional.windows import is_int


class ToWindowsCache(NamedTuple):
    shape: tuple   # (B, H, W, D) of the tokens that came in
    window: tuple  # (p, q)
    shift: int


def windows_shape(cache):
    (B, H, W, D), (p, q), _ = cache
    return B * -(-H // p) * -(-W // q), p * q, D


@operation(any_dtype="x")
def to_windows(x, window, shift=0):
    """Cut tokens in a grid, x (B, H, W, D), into windows of p×q tokens: (B · ⌈H/p⌉ · ⌈W/q⌉, p q, D).

    window   p and q, or an int for both
    shift    by how many rows and columns the grid is rolled first, up and to the left: what leaves it there comes back
             at the other side

    Windows of a sample follow each other row by row, and so do the tokens of a window. A grid that the windows don't
    divide is padded by zeros below and to the right first.
    Liu et al. 2021, "Swin transformer", section 3.2. Derived in notebooks/13.
    """
    p, q = check_window("to_windows", x, window, shift)
    cache = ToWindowsCache(x.shape, (p, q), shift)
    x = pad_to(x, p, q)
    x = array_module(x).roll(x, (-shift, -shift), (1, 2)) if shift else x
    B, H, W, D = x.shape
    cut = x.reshape(B, H // p, p, W // q, q, D).transpose(0, 1, 3, 2, 4, 5)
    return cut.reshape(windows_shape(cache)), cache


@backward_of(to_windows, result=windows_shape)
def to_windows_backward(dy, cache):
    """Every token's gradient goes back to where it came from: as in `from_windows`."""
    return put_back(dy, *cache)


class FromWindowsCache(NamedTuple):
    shape: tuple   # (B, H, W, D) of the result
    window: tuple  # (p, q)
    shift: int


@operation(any_dtype="x")
def from_windows(x, sides, window, shift=0):
    """The inverse of `to_windows`: windows x (B · ⌈H/p⌉ · ⌈W/q⌉, p q, D) become a grid of tokens (B, H, W, D).

    sides    (H, W) of the grid; padding is cut off
    """
    sides, window = as_pair(sides), as_pair(window)
    shape = check_windows("from_windows", x, sides, window, shift)
    return put_back(x, shape, window, shift), FromWindowsCache(shape, window, shift)


@backward_of(from_windows, result=lambda cache: cache.shape)
def from_windows_backward(dy, cache):
    """Cut into windows again; padding gets no gradient."""
    return to_windows.reference(dy, cache.window, cache.shift)[0]


def put_back(windows, shape, window, shift):
    """The tokens (B, H, W, D) of windows."""
    (B, H, W, D), (p, q) = shape, window
    rows, columns = -(-H // p), -(-W // q)
    x = windows.reshape(B, rows, columns, p, q, D).transpose(0, 1, 3, 2, 4, 5).reshape(B, rows * p, columns * q, D)
    x = array_module(x).roll(x, (shift, shift), (1, 2)) if shift else x
    return x if x.shape == shape else x[:, :H, :W].copy()


def pad_to(x, p, q):
    """x (B, H, W, D) with zeros below and to the right, so that p and q divide its sides."""
    B, H, W, D = x.shape
    rows, columns = -(-H // p) * p, -(-W // q) * q
    if (rows, columns) == (H, W):
        return x
    padded = array_module(x).zeros((B, rows, columns, D), x.dtype)
    padded[:, :H, :W] = x
    return padded


def check_window(name, x, window, shift):
    """The window's (p, q); ValueError for tokens that aren't in a grid, and for a window or shift that can't be."""
    p, q = as_pair(window)
    if x.ndim != 4 or not x.shape[1] * x.shape[2]:
        raise ValueError(f"{name}: expected tokens in a grid, x (B, H, W, D), got {x.shape}")
    check_shift(name, shift, (p, q))
    return p, q


def check_windows(name, x, sides, window, shift):
    """The shape (B, H, W, D) of the tokens of windows x; ValueError for windows that don't make up grids."""
    (H, W), (p, q) = sides, window
    check_shift(name, shift, window)
    count = -(-H // p) * -(-W // q)
    if x.ndim != 3 or len(x) % count or x.shape[1] != p * q:
        raise ValueError(
            f"{name}: expected windows x (B · {count}, {p * q}, D) of {p}×{q} tokens for a grid {H}×{W}, got {x.shape}"
        )
    return len(x) // count, H, W, x.shape[2]


def check_shift(name, shift, window):
    if not is_int(shift) or not 0 <= shift < min(window):
        p, q = window
        raise ValueError(f"{name}: expected a shift as an int from 0 to below the window's {p}×{q}, got {shift!r}")


def window_masks(sides, window, shift, device="cpu", dtype="float32"):
    """Masks for the scores of shifted windows, 0 and −∞: (⌈H/p⌉ · ⌈W/q⌉, p q, p q).

    After the roll of `to_windows` the last window of a row holds tokens from both sides of the grid. Only those that
    are neighbours in the grid, or in its padding, see each other.
    """
    sides, window = as_pair(sides), as_pair(window)
    check_shift("window_masks", shift, window)
    return masks_on(sides, window, shift, device, dtype)


@lru_cache(maxsize=32)
def masks_on(sides, window, shift, device, dtype):
    """The masks, kept on a device: every step asks for the same ones.

    Along an axis of 8 tokens, with windows of 4 and a shift of 2, the rolled tokens 2 3 4 5 | 6 7 0 1 have the regions
    0 0 0 0 | 1 1 2 2.
    """
    (H, W), (p, q) = sides, window
    regions = [
        np.searchsorted([padded - side, padded - shift], np.arange(padded), side="right")
        for padded, side in ((-(-H // p) * p, p), (-(-W // q) * q, q))
    ]
    grid = 3 * regions[0][:, None] + regions[1]                                # a number for each region
    rows, columns = len(grid) // p, grid.shape[1] // q
    numbers = grid.reshape(rows, p, columns, q).transpose(0, 2, 1, 3).reshape(rows * columns, p * q)
    masks = np.where(numbers[:, :, None] == numbers[:, None], 0.0, -np.inf)
    return constant(masks, device, dtype)
