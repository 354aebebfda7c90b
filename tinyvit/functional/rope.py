"""Rotary position embedding over two axes."""

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from tinyvit.arrays import Array
from tinyvit.backend import constant, device_of
from tinyvit.dispatch import backward_of, operation


class RopeCache(NamedTuple):
    cos: Array  # (N, d/2), or with an index (B, 1, n, d/2)
    sin: Array
    shape: tuple  # (B, H, prefix + N, d) of x


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
    return rotate(x, cos, sin), RopeCache(cos, sin, x.shape)


@backward_of(rope, result=lambda cache: cache.shape)
def rope_backward(dy, cache):
    """A rotation's transpose is its inverse: turn the gradient back by the same angles."""
    cos, sin, _ = cache
    return rotate(dy, cos, -sin)


def rotate(x, cos, sin):
    """Rotate the pairs of the last cos.shape[-2] tokens of x: (a, b) becomes (a cos − b sin, a sin + b cos)."""
    y = x.copy()
    patches = (..., slice(x.shape[-2] - cos.shape[-2], None))
    a, b = x[(*patches, slice(0, None, 2))], x[(*patches, slice(1, None, 2))]
    y[(*patches, slice(0, None, 2))] = a * cos - b * sin
    y[(*patches, slice(1, None, 2))] = a * sin + b * cos
    return y


@lru_cache(maxsize=32)
def rope_tables(rows, columns, width, theta, device, dtype):
    """Cosine and sine of every patch's angles, (rows·columns, width/2) each, on a device."""
    frequencies = theta ** -(np.arange(width // 4) / (width // 4))
    y, x = np.divmod(np.arange(rows * columns), columns)
    angles = np.concatenate([np.outer(x, frequencies), np.outer(y, frequencies)], axis=1)
    return constant(np.cos(angles), device, dtype), constant(np.sin(angles), device, dtype)
