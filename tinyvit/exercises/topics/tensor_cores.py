"""Attention on a GPU: what two tiles of keys have found put together, and which numbers of a matrix a lane holds."""

import numpy as np

from tinyvit import functional as F
from tinyvit.exercises.exercise import Case, Exercise
from tinyvit.functional.tiled_attention import tiled_attention


def tiles(random, N, d, T, shift=0.0):
    """(m, Z, a) of N queries for two tiles of T keys, the scores of the second one `shift` higher."""
    found = []
    for higher in (0.0, shift):
        scores, values = random.standard_normal((N, T)) + higher, random.standard_normal((T, d))
        m = scores.max(1)
        exps = np.exp(scores - m[:, None])
        found += [m, exps.sum(1), exps @ values]
    return tuple(found)


def second_is_larger(random):
    return tiles(random, 5, 3, 4, 1000.0)


def first_is_larger(random):
    return tiles(random, 5, 3, 4, -1000.0)


def merged(m1, Z1, a1, m2, Z2, a2):
    """The means of both tiles, weighted by the softmax of the logarithms of their sums of exponentials."""
    shares, _ = F.softmax(np.stack([m1 + np.log(Z1), m2 + np.log(Z2)], 1))
    return shares[:, :1] * a1 / Z1[:, None] + shares[:, 1:] * a2 / Z2[:, None]


MERGE = Exercise(
    "merge_tiles",
    "Attention of N queries over two tiles of keys, from what each has found alone (Dao et al. 2022, algorithm 1).",
    {
        "m1": "(N,), the largest score of each query in the first tile",
        "Z1": "(N,), Σ exp(s − m1) over the tile's scores s",
        "a1": "(N, d), Σ exp(s − m1) v over the tile's keys, with their values v",
        "m2": "(N,), of the second tile",
        "Z2": "(N,), of the second tile",
        "a2": "(N, d), of the second tile",
    },
    {"y": "(N, d), the mean of the values of both tiles, weighted by the softmax of all scores"},
    right=merged,
    shown=(tiled_attention,),
    inputs=tiles,
    sizes=({"N": 5, "d": 3, "T": 4}, {"N": 4, "d": 6, "T": 2}),
    traps=(
        Case("a second tile 1000 higher", second_is_larger),
        Case("a second tile 1000 lower", first_is_larger),
    ),
)

VALUES, SUMS = "(a1 * f1[:, None] + a2 * f2[:, None])", "(Z1 * f1 + Z2 * f2)"
MEAN = f"{VALUES} / {SUMS}[:, None]"
BOTH = "Both tiles have a part in the mean."

MERGE.edit("nothing is rescaled", "a1 and Z1 were summed with m1 subtracted, a2 and Z2 with m2: rescale them.",
    (VALUES, "(a1 + a2)"), (SUMS, "(Z1 + Z2)"))
MERGE.edit("only the values are rescaled", "Z has the same exponentials as a, and needs the same factors.",
    (SUMS, "(Z1 + Z2)"))
MERGE.edit("only the sums are rescaled", "a has the same exponentials as Z, and needs the same factors.",
    (VALUES, "(a1 + a2)"))
MERGE.edit("the mean of both tiles", "A tile counts by its share of the sum of exponentials, not by half.",
    (MEAN, "(a1 / Z1[:, None] + a2 / Z2[:, None]) / 2"))
MERGE.edit("the tiles are added", "Each tile's mean counts by its share of the sum of exponentials.",
    (MEAN, "a1 / Z1[:, None] + a2 / Z2[:, None]"))
MERGE.edit("not divided", "y = a / Z: divide by the sum of both tiles.", (f" / {SUMS}[:, None]", ""))
MERGE.edit("rescaled by the other tile's maximum", "The first tile's factor is exp(m1 − m), with its own m1.",
    "m1, m2 = m2, m1")
MERGE.edit("the first tile alone", BOTH, (MEAN, "a1 / Z1[:, None]"))
MERGE.edit("the second tile alone", BOTH, (MEAN, "a2 / Z2[:, None]"))
MERGE.edit("no maximum is subtracted", "exp(1000) overflows. Rescale to the larger maximum, with exp(m1 − m).",
    (" - m)", ")"))

FRAGMENT = Exercise(
    "to_fragments",
    "The matrix A of mma.m16n8k16 dealt out to the 32 lanes of a warp. Lanes 0 to 3 share g = 0 and begin at columns "
    "0, 2, 4 and 6; lanes 4 to 7 share g = 1, and so on. A lane's eight numbers are two neighbours in row g, those "
    "below them in row g + 8, then the same two pairs 8 columns further right.",
    {"A": "(16, 16)"},
    {"fragments": "(32, 8), a row for each lane"},
    right=lambda A: A.reshape(2, 8, 2, 4, 2).transpose(1, 3, 2, 0, 4).reshape(32, 8),
    shown=(),
    inputs=lambda random: (random.standard_normal((16, 16)),),
    sizes=({},),
)
EXERCISES = MERGE, FRAGMENT

ROWS, COLUMNS = "[0, 0, 8, 8, 0, 0, 8, 8]", "[0, 1, 0, 1, 8, 9, 8, 9]"

FRAGMENT.edit("g and t are exchanged", "Four lanes share a row: g = lane // 4; t = lane % 4 is the place in it.",
    ("g, t =", "t, g ="), (", 4)", ", 8)"))
FRAGMENT.edit("rows and columns are exchanged", "The two of a pair are neighbours in a row.", "A = A.T")
FRAGMENT.edit("the halves in the other order", "The second pair is in row g + 8; only the third is 8 columns further "
    "right.", (ROWS, "[0, 0, 0, 0, 8, 8, 8, 8]"), (COLUMNS, "[0, 1, 8, 9, 0, 1, 8, 9]"))
FRAGMENT.edit("pairs begin at column t", "A lane has two neighbours, so its pair begins at column 2 t.", ("2 * t", "t"))
FRAGMENT.edit("the second of a pair is 4 columns further", "A pair are neighbours, 2 t and 2 t + 1.", ("2 * t", "t"),
    (COLUMNS, "[0, 4, 0, 4, 8, 12, 8, 12]"))
FRAGMENT.edit("the second row is the next one", "A lane's second row is g + 8, in the lower half of the matrix.",
    ("rows = g", "rows = 2 * g"), (ROWS, "[0, 0, 1, 1, 0, 0, 1, 1]"))
FRAGMENT.edit("eight numbers in a row", "That is the order in memory; a lane has pairs of two rows.",
    ("A[rows, columns]", "A.reshape(32, 8)"))
