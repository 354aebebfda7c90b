"""Relative positions: a bias for attention that depends on the difference of two tokens' places alone."""

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from tinyvit.arrays import array_module
from tinyvit.backend import constant, device_of
from tinyvit.dispatch import backward_of, operation
from tinyvit.functional.patches import as_pair


class RelativeBiasCache(NamedTuple):
    shape: tuple  # of the table
    sides: tuple  # (h, w) that the table is for
    grid: tuple   # (rows, columns) of the tokens


def bias_shape(cache):
    rows, columns = cache.grid
    return cache.shape[1], rows * columns, rows * columns


@operation
def relative_bias(weight, sides, grid=None):
    """The bias of every pair of tokens in a grid, (H, n, n), from a table with an entry for every difference:

        bias_hij = weight[(Δrow + h − 1) (2w − 1) + Δcolumn + w − 1, h]   with Δ = place of query i − place of key j

    weight   (2h − 1) (2w − 1) rows and a column for each head H
    sides    (h, w), the largest grid that the table is for
    grid     (rows, columns) of the n tokens, by default `sides`; a smaller one uses the middle of the table

    Liu et al. 2021, "Swin transformer", eq. 4; Shaw et al. 2018. Derived in notebooks/13.
    """
    (h, w), grid = as_pair(sides), as_pair(sides if grid is None else grid)
    rows, columns = grid
    if weight.ndim != 2 or len(weight) != (2 * h - 1) * (2 * w - 1):
        raise ValueError(f"relative_bias: expected a table ({(2 * h - 1) * (2 * w - 1)}, H) for {h}×{w} tokens, "
                         f"got {weight.shape}")  # fmt: skip
    if rows > h or columns > w:
        raise ValueError(f"relative_bias: expected a grid of at most {h}×{w} tokens, got {rows}×{columns}")
    index, _ = tables((h, w), grid, device_of(weight))
    bias = weight.T[:, index].reshape(weight.shape[1], *[rows * columns] * 2)
    return bias, RelativeBiasCache(weight.shape, (h, w), grid)


@backward_of(relative_bias, result=bias_shape, parameters=lambda cache: [cache.shape])
def relative_bias_backward(dy, cache):
    """An entry of the table was used by all pairs with the same difference; its gradient is their sum, in one order."""
    (_, H), sides, grid = cache
    xp = array_module(dy)
    _, pairs = tables(sides, grid, device_of(dy))                              # (entries, n)
    # Entries have different numbers of pairs; the list of each is filled up with pair n², whose gradient is zero.
    dbias = xp.concatenate([dy.reshape(H, -1), xp.zeros((H, 1), dy.dtype)], axis=1)
    return dbias[:, pairs].sum(-1).T


@lru_cache(maxsize=64)
def tables(sides, grid, device):
    """The table entry of each pair of tokens (n²,), and the pairs of each entry (entries, n), padded with n²."""
    (h, w), (rows, columns) = sides, grid
    y, x = np.divmod(np.arange(rows * columns), columns)
    index = ((y[:, None] - y + h - 1) * (2 * w - 1) + x[:, None] - x + w - 1).ravel()
    order = np.argsort(index, kind="stable")
    entries, first = np.unique(index[order], return_index=True)
    pairs = np.full(((2 * h - 1) * (2 * w - 1), rows * columns), len(index))
    for entry, of_entry in zip(entries, np.split(order, first[1:])):
        pairs[entry, : len(of_entry)] = of_entry
    return constant(index, device, "int64"), constant(pairs, device, "int64")
