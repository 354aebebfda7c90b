"""How points along an axis are made of others: matrices (new, old) whose rows add up to 1.

In two dimensions one goes down and one across, so the backward of an interpolation is the transposes of two matrices.
"""

from functools import lru_cache

import numpy as np

from tinyvit.backend import constant

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
