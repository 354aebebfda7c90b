"""Merging patches: four neighbours become one, four times as wide."""

from typing import NamedTuple

from tinyvit.arrays import array_module
from tinyvit.dispatch import backward_of, operation
from tinyvit.functional.shifted_windows import pad_to

PLACES = ((0, 0), (1, 0), (0, 1), (1, 1))  # (row, column) in a square of four, in the order of their numbers


class MergePatchesCache(NamedTuple):
    shape: tuple  # (B, H, W, D) of the tokens that came in


def merged_shape(cache):
    B, H, W, D = cache.shape
    return B, (H + 1) // 2, (W + 1) // 2, 4 * D


@operation(any_dtype="x")
def merge_patches(x):
    """The tokens of each square of 2×2, side by side: x (B, H, W, D) becomes (B, ⌈H/2⌉, ⌈W/2⌉, 4D).

    The order is upper left, lower left, upper right, lower right. An odd side is padded by zeros below or to the right.
    Liu et al. 2021, "Swin transformer", section 3.1, "patch merging". Derived in notebooks/13.
    """
    if x.ndim != 4:
        raise ValueError(f"merge_patches: expected tokens in a grid, x (B, H, W, D), got {x.shape}")
    padded = pad_to(x, 2, 2)
    four = [padded[:, row::2, column::2] for row, column in PLACES]
    return array_module(x).concatenate(four, axis=-1), MergePatchesCache(x.shape)


@backward_of(merge_patches, result=merged_shape)
def merge_patches_backward(dy, cache):
    """Every token gets the quarter of dy that it became; that of the padding is left out."""
    B, H, W, D = cache.shape
    rows, columns = dy.shape[1:3]
    dx = array_module(dy).empty((B, 2 * rows, 2 * columns, D), dy.dtype)
    for i, (row, column) in enumerate(PLACES):
        dx[:, row::2, column::2] = dy[..., i * D : (i + 1) * D]
    return dx if (2 * rows, 2 * columns) == (H, W) else dx[:, :H, :W].copy()
