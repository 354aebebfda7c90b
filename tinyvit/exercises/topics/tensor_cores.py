"""Attention on a GPU: what two tiles of keys have found put together, and which numbers of a matrix a lane holds."""

import numpy as np

from tinyvit.exercises.exercise import Case, exercise, lesson


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
    tiles, ({"N": 5, "d": 3, "T": 4}, {"N": 4, "d": 6, "T": 2}),
    traps=(
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


lesson(merge_tiles, """
Package: tinyvit.functional.tiled_attention.tiled_attention

Hints:
  Each tile's exponentials were taken with its own largest score. With which one would all be comparable?
  Bring a and Z of both tiles to the common maximum, add each, and divide at the end.
  m = max(m₁, m₂), fᵢ = e^(mᵢ − m): y = (f₁ a₁ + f₂ a₂) / (f₁ Z₁ + f₂ Z₂).

Mistakes:
  nothing is rescaled
    a1 and Z1 were summed with m1 subtracted, a2 and Z2 with m2: rescale them.
    `(a1 * f1[:, None] + a2 * f2[:, None])` → `(a1 + a2)`
    `(Z1 * f1 + Z2 * f2)` → `(Z1 + Z2)`
  only the values are rescaled
    Z has the same exponentials as a, and needs the same factors.
    `(Z1 * f1 + Z2 * f2)` → `(Z1 + Z2)`
  only the sums are rescaled
    a has the same exponentials as Z, and needs the same factors.
    `(a1 * f1[:, None] + a2 * f2[:, None])` → `(a1 + a2)`
  the mean of both tiles
    A tile counts by its share of the sum of exponentials, not by half.
    `(a1 * f1[:, None] + a2 * f2[:, None]) / (Z1 * f1 + Z2 * f2)[:, None]` →
      `(a1 / Z1[:, None] + a2 / Z2[:, None]) / 2`
  the tiles are added
    Each tile's mean counts by its share of the sum of exponentials.
    `(a1 * f1[:, None] + a2 * f2[:, None]) / (Z1 * f1 + Z2 * f2)[:, None]` → `a1 / Z1[:, None] + a2 / Z2[:, None]`
  not divided
    y = a / Z: divide by the sum of both tiles.
    ` / (Z1 * f1 + Z2 * f2)[:, None]` → ``
  rescaled by the other tile's maximum
    The first tile's factor is exp(m1 − m), with its own m1.
    `m1, m2 = m2, m1`
  the first tile alone
    Both tiles have a part in the mean.
    `(a1 * f1[:, None] + a2 * f2[:, None]) / (Z1 * f1 + Z2 * f2)[:, None]` → `a1 / Z1[:, None]`
  the second tile alone
    Both tiles have a part in the mean.
    `(a1 * f1[:, None] + a2 * f2[:, None]) / (Z1 * f1 + Z2 * f2)[:, None]` → `a2 / Z2[:, None]`
  no maximum is subtracted
    exp(1000) overflows. Rescale to the larger maximum, with exp(m1 − m).
    ` - m)` → `)`
""")


@exercise(lambda random: (random.standard_normal((16, 16)),), ({},))
def to_fragments(A):
    """The matrix A of mma.m16n8k16 dealt out to the 32 lanes of a warp. Lanes 0 to 3 share g = 0 and begin at columns
    0, 2, 4 and 6; lanes 4 to 7 share g = 1, and so on. A lane's eight numbers are two neighbours in row g, those below
    them in row g + 8, then the same two pairs 8 columns further right.

      A  (16, 16)

    returns
      fragments  (32, 8), a row for each lane
    """
    g, t = np.divmod(np.arange(32)[:, None], 4)
    rows = g + np.array([0, 0, 8, 8, 0, 0, 8, 8])
    columns = 2 * t + np.array([0, 1, 0, 1, 8, 9, 8, 9])
    return A[rows, columns]


lesson(to_fragments, """
Hints:
  Which lanes share row 0? In which columns does each of them begin?
  g = lane // 4 and t = lane % 4; four pairs: two rows, then the same two rows in the right half.
  The entries of A in the rows g and g + 8, each at 2t and 2t + 1; then at 2t + 8 and 2t + 9 of both rows.

Mistakes:
  g and t are exchanged
    Four lanes share a row: g = lane // 4; t = lane % 4 is the place in it.
    `g, t =` → `t, g =`
    `, 4)` → `, 8)`
  rows and columns are exchanged
    The two of a pair are neighbours in a row.
    `A = A.T`
  the halves in the other order
    The second pair is in row g + 8; only the third is 8 columns further right.
    `[0, 0, 8, 8, 0, 0, 8, 8]` → `[0, 0, 0, 0, 8, 8, 8, 8]`
    `[0, 1, 0, 1, 8, 9, 8, 9]` → `[0, 1, 8, 9, 0, 1, 8, 9]`
  pairs begin at column t
    A lane has two neighbours, so its pair begins at column 2 t.
    `2 * t` → `t`
  the second of a pair is 4 columns further
    A pair are neighbours, 2 t and 2 t + 1.
    `2 * t` → `t`
    `[0, 1, 0, 1, 8, 9, 8, 9]` → `[0, 4, 0, 4, 8, 12, 8, 12]`
  the second row is the next one
    A lane's second row is g + 8, in the lower half of the matrix.
    `rows = g` → `rows = 2 * g`
    `[0, 0, 8, 8, 0, 0, 8, 8]` → `[0, 0, 1, 1, 0, 0, 1, 1]`
  eight numbers in a row
    That is the order in memory; a lane has pairs of two rows.
    `A[rows, columns]` → `A.reshape(32, 8)`
""")
