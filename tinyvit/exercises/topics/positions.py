"""Positions made of sines and cosines: added to tokens, or as angles by which queries and keys are turned."""

import numpy as np

from tinyvit.exercises.exercise import exercise


def grid_of(random, R, C, d):
    return R, C, 4 * d


def rope_inputs(random, B, H, R, C, d, theta):
    x = random.standard_normal((B, H, R * C, 4 * d))
    return x, (R, C), float(theta)


@exercise(grid_of, "R C d")
def sincos_positions(rows, columns, width):
    """Fixed positions of the patches of a grid, counted row by row (MAE, He et al. 2022). The first half of the D
    numbers belongs to the patch's column, the second to its row. Each half has the sines of coordinate · ωₖ for all
    k = 0, …, D/4 − 1, and then the cosines, with ωₖ = 10000^(−k/(D/4)).

      rows     of the grid, counted from 0
      columns  of the grid, counted from 0
      width    D, a multiple of 4

    returns
      positions  (rows · columns, D)
    """
    i, j = np.divmod(np.arange(rows * columns), columns)
    frequencies = 10000.0 ** -(np.arange(width // 4) / (width // 4))
    across = np.outer(j, frequencies)
    down = np.outer(i, frequencies)
    of_columns = [np.sin(across), np.cos(across)]
    of_rows = [np.sin(down), np.cos(down)]
    return np.concatenate([*of_columns, *of_rows], 1)


def turn(x, grid, theta, way):
    """x with its pairs of neighbours turned by their angles, or turned back."""
    rows, columns = grid
    i, j = np.divmod(np.arange(rows * columns), columns)
    quarter = x.shape[-1] // 4
    frequencies = theta ** -(np.arange(quarter) / quarter)
    across = np.outer(j, frequencies)
    down = np.outer(i, frequencies)
    angles = way * np.concatenate([across, down], 1)
    cos, sin = np.cos(angles), np.sin(angles)
    first = x[..., 0::2]
    second = x[..., 1::2]
    turned = np.empty_like(x)
    turned[..., 0::2] = first * cos - second * sin
    turned[..., 1::2] = first * sin + second * cos
    return turned


@exercise(rope_inputs, "B H R C d theta=50,100,10", "", equal="R=3 C=3 theta=50")
def rope(x, grid, theta):
    """Rotary positions on two axes (Heo et al. 2024): turn each pair of neighbours (x₀, x₁), (x₂, x₃), … of a query or
    key: (a, b) becomes (a cos φ − b sin φ, a sin φ + b cos φ). For the patch in row i and column j the first d/4 pairs
    have the angles φ = j · ωₖ, the others φ = i · ωₖ, with ωₖ = θ^(−k/(d/4)) for k = 0, …, d/4 − 1.

      x      (B, H, rows · columns, d), the patches row by row; d is a multiple of 4
      grid   (rows, columns)
      theta  θ

    returns
      y  as x
    """
    return turn(x, grid, theta, 1)


@exercise(forward=rope)
def rope_backward(dy, grid, theta):
    """The gradient of `rope`. A rotation's transpose is its inverse.

      dy     (B, H, rows · columns, d), the gradient of the turned queries or keys
      grid   (rows, columns)
      theta  θ

    returns
      dx  as dy
    """
    return turn(dy, grid, theta, -1)
