"""How points along an axis are made of others: matrices (new, old) whose rows add up to 1.

In two dimensions one goes down and one across, so the backward of an interpolation is the transposes of two matrices.
"""

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from tinyvit.backend import constant, device_of
from tinyvit.dispatch import backward_of, operation
from tinyvit.functional.patches import as_pair

KEYS_A = -0.75  # of PyTorch; Keys' own −0.5 is what its antialiased form takes


def bilinear(old, new):
    """Linear between the centres of `old` cells of an axis, and constant beyond the outermost."""
    return hats(np.clip(cell_centres(old, new), 0, old - 1), old)


def zoom(old, new):
    """Linear, with the first point on the first and the last on the last: corners aligned."""
    places = np.linspace(0, old - 1, new)  # at 0 if there is one
    return hats(places, old)


def bicubic(old, new, a=KEYS_A):
    """Cubic through four neighbours, which beyond the edge are the outermost cell itself.

    With distances |t| the weights are (a+2)|t|³ − (a+3)t² + 1 up to 1, and a|t|³ − 5a t² + 8a|t| − 4a from 1 to 2.
    Keys 1981, "Cubic convolution interpolation for digital image processing", eq. 4 with any a.
    """
    places, rows = cell_centres(old, new), np.arange(new)
    matrix = np.zeros((new, old))
    for offset in (-1, 0, 1, 2):
        neighbours = np.floor(places) + offset
        t = abs(places - neighbours)
        near = ((a + 2) * t - (a + 3)) * t * t + 1
        far = ((a * t - 5 * a) * t + 8 * a) * t - 4 * a
        columns = np.clip(neighbours, 0, old - 1).astype(int)
        matrix[rows, columns] += np.where(t <= 1, near, far)  # each row once
    return matrix


def cell_centres(old, new):
    """The centres of `new` cells of an axis, counted in those of `old` ones."""
    return (np.arange(new) + 0.5) * old / new - 0.5


def hats(places, old):
    """Linear interpolation at places (new,) from 0 to old − 1: (new, old)."""
    return np.maximum(0.0, 1 - abs(places[:, None] - np.arange(old)))


INTERPOLATIONS = {"bilinear": bilinear, "bicubic": bicubic, "zoom": zoom}


@lru_cache(maxsize=64)
def matrix_on(device, method, old, new, dtype):
    """A matrix, kept on a device: a training on small images asks for the same one in every step."""
    return constant(INTERPOLATIONS[method](old, new), device, dtype)


class ResizeCache(NamedTuple):
    down: Any     # (H', H)  how much of each row goes into each new one
    across: Any   # (W', W)
    shape: tuple  # (B, C, H, W) of what came in


@operation
def resize_bilinear(x, size):
    """Feature maps `x` (B, C, H, W) in another size (H', W'), or H' for a square, linear between the centres of pixels:

        Y = A X Bᵀ    with the matrices A of `bilinear` for the rows and B for the columns

    Beyond the outermost centres it is constant; PyTorch's interpolate(mode="bilinear", align_corners=False). Nothing is
    averaged where it shrinks. Raises ValueError for maps without pixels, and for a size that isn't one.
    Derived in notebooks/22.
    """
    if x.ndim != 4 or not x.shape[2] * x.shape[3]:
        raise ValueError(f"resize_bilinear: expected x (B, C, H, W) of at least one pixel, got {x.shape}")
    device, dtype = device_of(x), x.real.dtype
    down, across = (matrix_on(device, "bilinear", *sides, dtype) for sides in zip(x.shape[2:], as_pair(size)))
    return down @ x @ across.T, ResizeCache(down, across, x.shape)


@backward_of(resize_bilinear, result=lambda cache: (*cache.shape[:2], len(cache.down), len(cache.across)))
def resize_bilinear_backward(dy, cache):
    """dX = Aᵀ dY B: each new pixel's gradient goes to those that it was made of, by their shares."""
    return cache.down.T @ dy @ cache.across
