"""Positions for another grid of patches."""

import numpy as np

from tinyvit.exercises.exercise import exercise, normal


def sides(random, old, new):
    return old, new


@exercise(sides, "old=8,7,1 new=12,3,old,1")
def bicubic(old, new):
    """Bicubic interpolation along one axis as a matrix W, so that the resized values are W @ values (Keys 1981).
    New patch i has its centre at s = (i + 0.5) · old/new − 0.5, counted in old patches. It takes the four old patches
    at floor(s) − 1 to floor(s) + 2, each with the weight k(|s − j|) of its distance t = |s − j|, where with a = −0.75
    k(t) = (a + 2)t³ − (a + 3)t² + 1 up to t = 1, and a·t³ − 5a·t² + 8a·t − 4a from there to 2. The weight of a patch
    beyond the edge goes to the outermost patch.

      old  patches along the axis
      new  patches after resizing

    returns
      W  (new, old), rows adding up to 1
    """
    a, rows, matrix = -0.75, np.arange(new), np.zeros((new, old))
    places = (np.arange(new) + 0.5) * old / new - 0.5
    for offset in (-1, 0, 1, 2):
        neighbours = np.floor(places) + offset
        t = abs(places - neighbours)
        near = (a + 2) * t**3 - (a + 3) * t**2 + 1
        far = a * t**3 - 5 * a * t**2 + 8 * a * t - 4 * a
        columns = np.clip(neighbours, 0, old - 1).astype(int)
        matrix[rows, columns] += np.where(t <= 1, near, far)
    return matrix


@exercise(normal("RKD", "Rr", "Kk"), "R K r k D")
def resize_backward(dy, down, across):
    """The gradient with respect to x of y[R, K] = Σ down[R, r] across[K, k] x[r, k], an interpolation summed over r,
    k.

      dy      (R, K, D): rows, columns of the new grid
      down    (R, r)
      across  (K, k)

    returns
      dx  (r, k, D)
    """
    return np.einsum("Rr,Kk,RKd->rkd", down, across, dy)
