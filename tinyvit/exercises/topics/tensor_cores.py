"""Attention on a GPU: what two tiles of keys have found put together, and which numbers of a matrix a lane holds."""

import numpy as np

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


def factors(m1, m2):
    m = np.maximum(m1, m2)
    return np.exp(m1 - m), np.exp(m2 - m)


def merge_tiles(m1, Z1, a1, m2, Z2, a2):
    f1, f2 = factors(m1, m2)
    return (a1 * f1[:, None] + a2 * f2[:, None]) / (Z1 * f1 + Z2 * f2)[:, None]


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
    right=merge_tiles,
    shown=(tiled_attention,),
    inputs=tiles,
    sizes=({"N": 5, "d": 3, "T": 4}, {"N": 4, "d": 6, "T": 2}),
    traps=(
        Case("a second tile 1000 higher", second_is_larger),
        Case("a second tile 1000 lower", first_is_larger),
    ),
)


@MERGE.mistake("nothing is rescaled", "a1 and Z1 were summed with m1 subtracted, a2 and Z2 with m2: rescale them.")
def not_rescaled(m1, Z1, a1, m2, Z2, a2):
    return (a1 + a2) / (Z1 + Z2)[:, None]


@MERGE.mistake("only the values are rescaled", "Z has the same exponentials as a, and needs the same factors.")
def sums_not_rescaled(m1, Z1, a1, m2, Z2, a2):
    f1, f2 = factors(m1, m2)
    return (a1 * f1[:, None] + a2 * f2[:, None]) / (Z1 + Z2)[:, None]


@MERGE.mistake("only the sums are rescaled", "a has the same exponentials as Z, and needs the same factors.")
def values_not_rescaled(m1, Z1, a1, m2, Z2, a2):
    f1, f2 = factors(m1, m2)
    return (a1 + a2) / (Z1 * f1 + Z2 * f2)[:, None]


@MERGE.mistake("the mean of both tiles", "A tile counts by its share of the sum of exponentials, not by half.")
def mean_of_both(m1, Z1, a1, m2, Z2, a2):
    return (a1 / Z1[:, None] + a2 / Z2[:, None]) / 2


@MERGE.mistake("the tiles are added", "Each tile's mean counts by its share of the sum of exponentials.")
def added(m1, Z1, a1, m2, Z2, a2):
    return a1 / Z1[:, None] + a2 / Z2[:, None]


@MERGE.mistake("not divided", "y = a / Z: divide by the sum of both tiles.")
def not_divided(m1, Z1, a1, m2, Z2, a2):
    f1, f2 = factors(m1, m2)
    return a1 * f1[:, None] + a2 * f2[:, None]


@MERGE.mistake("rescaled by the other tile's maximum", "The first tile's factor is exp(m1 − m), with its own m1.")
def crosswise(m1, Z1, a1, m2, Z2, a2):
    return merge_tiles(m2, Z1, a1, m1, Z2, a2)


@MERGE.mistake("the first tile alone", "Both tiles have a part in the mean.")
def first_alone(m1, Z1, a1, m2, Z2, a2):
    return a1 / Z1[:, None]


@MERGE.mistake("the second tile alone", "Both tiles have a part in the mean.")
def second_alone(m1, Z1, a1, m2, Z2, a2):
    return a2 / Z2[:, None]


@MERGE.mistake("no maximum is subtracted", "exp(1000) overflows. Rescale to the larger maximum, with exp(m1 − m).")
def overflowing(m1, Z1, a1, m2, Z2, a2):
    f1, f2 = np.exp(m1), np.exp(m2)
    return (a1 * f1[:, None] + a2 * f2[:, None]) / (Z1 * f1 + Z2 * f2)[:, None]


# -- fragments --------------------------------------------------------------------------------------------------------

HALF, SECOND = np.array([0, 0, 0, 0, 1, 1, 1, 1]), np.array([0, 0, 1, 1, 0, 0, 1, 1])  # the right half; the second row
NEXT = np.array([0, 1] * 4)
LANE = np.arange(32)[:, None]


def matrix(random):
    return (random.standard_normal((16, 16)),)


def places(g=LANE // 4, t=LANE % 4):
    """Rows and columns of the numbers in each lane (32, 8)."""
    return g + 8 * SECOND, 2 * t + NEXT + 8 * HALF


def to_fragments(A):
    return A[places()]


FRAGMENT = Exercise(
    "to_fragments",
    "The matrix A of mma.m16n8k16 dealt out to the 32 lanes of a warp. Lanes 0 to 3 share g = 0 and begin at columns "
    "0, 2, 4 and 6; lanes 4 to 7 share g = 1, and so on. A lane's eight numbers are two neighbours in row g, those "
    "below them in row g + 8, then the same two pairs 8 columns further right.",
    {"A": "(16, 16)"},
    {"fragments": "(32, 8), a row for each lane"},
    right=to_fragments,
    shown=(),
    inputs=matrix,
    sizes=({},),
)
EXERCISES = MERGE, FRAGMENT


@FRAGMENT.mistake("g and t are exchanged", "Four lanes share a row: g = lane // 4; t = lane % 4 is the place in it.")
def exchanged(A):
    return A[places(LANE % 8, LANE // 8)]


@FRAGMENT.mistake("rows and columns are exchanged", "The two of a pair are neighbours in a row.")
def transposed(A):
    return A.T[places()]


@FRAGMENT.mistake(
    "the halves in the other order", "The second pair is in row g + 8; only the third is 8 columns further right."
)
def columns_first(A):
    return A[LANE // 4 + 8 * HALF, 2 * (LANE % 4) + NEXT + 8 * SECOND]


@FRAGMENT.mistake("pairs begin at column t", "A lane has two neighbours, so its pair begins at column 2 t.")
def overlapping(A):
    return A[LANE // 4 + 8 * SECOND, LANE % 4 + NEXT + 8 * HALF]


@FRAGMENT.mistake("the second of a pair is 4 columns further", "A pair are neighbours, 2 t and 2 t + 1.")
def apart(A):
    return A[LANE // 4 + 8 * SECOND, LANE % 4 + 4 * NEXT + 8 * HALF]


@FRAGMENT.mistake("the second row is the next one", "A lane's second row is g + 8, in the lower half of the matrix.")
def neighbouring_rows(A):
    return A[2 * (LANE // 4) + SECOND, 2 * (LANE % 4) + NEXT + 8 * HALF]


@FRAGMENT.mistake("eight numbers in a row", "That is the order in memory; a lane has pairs of two rows.")
def in_order(A):
    return A.reshape(32, 8)
