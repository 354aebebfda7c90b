"""Rotary position embedding over two axes."""

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from tinyvit.arrays import Array, array_module
from tinyvit.backend import constant, device_of
from tinyvit.dispatch import backward_of, operation

NEIGHBOURS = slice(0, None, 2), slice(1, None, 2)  # the even and the odd numbers of a row


class RopeCache(NamedTuple):
    cos: Array  # (N, d/2), or with an index (B, 1, n, d/2)
    sin: Array
    shape: tuple  # (B, H, prefix + N, d) of x
    pairs: tuple  # which numbers of a row are the first of a pair, and which the second, as slices


@operation(any_dtype="index")
def rope(x, grid, theta=100.0, index=None):
    """Turn each pair of numbers of a query or key by an angle that grows with the patch's position.

    x (B, H, prefix + rows·columns, d), grid (rows, columns), d a multiple of 4. The pairs (x₀, x₁), (x₂, x₃), …
    of the patch in row i, column j are rotated by j·ωₖ for the first d/4 pairs and by i·ωₖ for the rest, with
    ωₖ = theta^(−k/(d/4)). What precedes the patches (the class token) is not rotated. The product of a rotated
    query with a rotated key then depends on the offset between the two patches alone.
    With `index` (B, n), integers, the tokens of x (B, H, prefix + n, d) are these patches of the grid alone.
    Su et al. 2021, "RoFormer"; Heo et al. 2024, "Rotary position embedding for vision transformer" (axial).
    """
    rows, columns = grid
    count = rows * columns if index is None else index.shape[1]
    if x.ndim < 2 or x.shape[-1] % 4 or x.shape[-2] < count:
        raise ValueError(f"rope: expected x (..., N, d) with N at least {count} and d a multiple of 4, got {x.shape}")
    cos, sin = rope_tables(rows, columns, x.shape[-1], theta, device_of(x), x.real.dtype)
    if index is not None:
        cos, sin = cos[index][:, None], sin[index][:, None]
    return rotate(x, cos, sin, NEIGHBOURS), RopeCache(cos, sin, x.shape, NEIGHBOURS)


@backward_of(rope, result=lambda cache: cache.shape)
def rope_backward(dy, cache):
    """A rotation's transpose is its inverse: turn the gradient back by the same angles."""
    cos, sin, _, pairs = cache
    return rotate(dy, cos, -sin, pairs)


@operation(any_dtype="positions")
def rope_halves(x, positions, theta=10000.0):
    """Turn pairs of numbers of a query or key by angles that grow with the token's place, as language models do it.

    x (B, H, N, d), d a multiple of 4; positions (N, 2), the row and the column of each token. `rope` pairs neighbours;
    here the pairs are (x₀, x_{d/2}), (x₁, x_{d/2+1}), …, a number of the first half with one of the second. The first
    d/4 of them are rotated by row·ωₖ and the rest by column·ωₖ, with ωₖ = theta^(−k/(d/4)): rows come first.
    Bai et al. 2025, "Qwen2.5-VL technical report", section 2.1.1.
    """
    width = x.shape[-1] if x.ndim else 0
    if x.ndim < 2 or width % 4 or positions.shape != (x.shape[-2], 2):
        raise ValueError(f"rope_halves: expected x (..., N, d), d a multiple of 4, and positions (N, 2), got {x.shape} "
                         f"and {positions.shape}")  # fmt: skip
    xp = array_module(x)
    frequencies = theta ** -(xp.arange(width // 4) / (width // 4))
    angles = (positions[:, :, None] * frequencies).reshape(-1, width // 2)     # in float64, whatever x is
    cos = xp.cos(angles).astype(x.real.dtype)
    sin = xp.sin(angles).astype(x.real.dtype)
    pairs = slice(width // 2), slice(width // 2, None)
    return rotate(x, cos, sin, pairs), RopeCache(cos, sin, x.shape, pairs)


@backward_of(rope_halves, result=lambda cache: cache.shape)
def rope_halves_backward(dy, cache):
    """Turn the gradient back by the same angles: `rope_backward`."""
    return rope_backward.reference(dy, cache)


def rotate(x, cos, sin, pairs):
    """Rotate the pairs of the last cos.shape[-2] tokens of x: (a, b) becomes (a cos − b sin, a sin + b cos)."""
    y = x.copy()
    patches = slice(x.shape[-2] - cos.shape[-2], None)
    first, second = ((..., patches, numbers) for numbers in pairs)
    a, b = x[first], x[second]
    y[first] = a * cos - b * sin
    y[second] = a * sin + b * cos
    return y


@lru_cache(maxsize=32)
def rope_tables(rows, columns, width, theta, device, dtype):
    """Cosine and sine of every patch's angles, (rows·columns, width/2) each, on a device."""
    frequencies = theta ** -(np.arange(width // 4) / (width // 4))
    y, x = np.divmod(np.arange(rows * columns), columns)
    angles = np.concatenate([np.outer(x, frequencies), np.outer(y, frequencies)], axis=1)
    return constant(np.cos(angles), device, dtype), constant(np.sin(angles), device, dtype)
