"""Attention on a GPU: what two tiles of keys have found put together, and which numbers of a matrix a lane holds."""

import numpy as np

from tinyvit.exercises.domain import Case
from tinyvit.exercises.exercise import exercise


def tiles(random, N, d, T, shift=0.0):
    """(m, Z, a) of N queries for two tiles of T keys, the scores of the second one `shift` higher."""
    found = []
    for higher in (0.0, shift):
        scores, values = random.standard_normal((N, T)) + higher, random.standard_normal((T, d))
        m = scores.max(1)
        exps = np.exp(scores - m[:, None])
        found += [m, exps.sum(1), exps @ values]
    return tuple(found)


@exercise(
    tiles, "N d T", "m1 m2",
    extra=(
        Case("a second tile 1000 higher", lambda random: tiles(random, 5, 3, 4, 1000.0)),
        Case("a second tile 1000 lower", lambda random: tiles(random, 5, 3, 4, -1000.0)),
    ),
)
def merge_tiles(m1, Z1, a1, m2, Z2, a2):
    """Attention of N queries over two tiles of keys, from what each has found alone (Dao et al. 2022, algorithm 1).

      m1  (N,), the largest score of each query in the first tile
      Z1  (N,), Σ exp(s − m1) over the tile's scores s
      a1  (N, d), Σ exp(s − m1) v over the tile's keys, with their values v
      m2  (N,), of the second tile
      Z2  (N,), of the second tile
      a2  (N, d), of the second tile

    returns
      y  (N, d), the mean of the values of both tiles, weighted by the softmax of all scores
    """
    m = np.maximum(m1, m2)
    f1, f2 = np.exp(m1 - m), np.exp(m2 - m)
    return (a1 * f1[:, None] + a2 * f2[:, None]) / (Z1 * f1 + Z2 * f2)[:, None]


@exercise(lambda random: (random.standard_normal((16, 16)),))
def to_fragments(A):
    """The eight numbers of A that each of the 32 lanes of a warp holds for the instruction mma.m16n8k16. Lane l has
    g = l // 4 and t = l % 4. In this order it holds columns 2t and 2t + 1 of row g, the same columns of row g + 8,
    columns 2t + 8 and 2t + 9 of row g, and those of row g + 8.

      A  (16, 16)

    returns
      fragments  (32, 8), a row for each lane
    """
    g, t = np.divmod(np.arange(32)[:, None], 4)
    rows = g + np.array([0, 0, 8, 8, 0, 0, 8, 8])
    columns = 2 * t + np.array([0, 1, 0, 1, 8, 9, 8, 9])
    return A[rows, columns]
