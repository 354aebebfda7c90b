"""A float32 sum that is nearly as accurate as with twice as many digits."""

import numpy as np

from tinyvit.exercises.exercise import Case, Exercise

ROUNDINGS = 1.5e-7  # 2.5 u of float32, relative


def inputs(random, n):
    return (random.random(n).astype("float32"),)


def lost_in_a_tree(random):
    """A 1, and pairwise partners whose sums are below half its last digit: one in every level of a tree is lost."""
    small = [random.uniform(0.44, 0.49, 2**level) * 2.0 ** (-23 - level) for level in range(12)]
    return (np.concatenate([[1.0], *small]).astype("float32"),)


def told_apart_by_float64(random):
    """1 + u + a bit less than nothing: in float32 it is 1 at every step, since 1 + u is rounded to even."""
    return (np.array([1.0, 2.0**-24, random.uniform(0.5, 1) * 2.0**-49], "float32"),)


def kahan_sum(numbers):
    s = c = np.float32(0)
    for x in numbers:
        y = x - c                                                            # correct the previous rounding error
        t = s + y
        c = (t - s) - y                                                      # the rounding error of t
        s = t
    return s


SUM = Exercise(
    "kahan_sum",
    "Kahan's sum (1965), in float32: add one by one, keep each rounding error, and subtract it from the next number.",
    {"numbers": "(n,), float32"},
    {"s": "a number"},
    right=kahan_sum,
    shown=(kahan_sum,),
    inputs=inputs,
    sizes=({"n": 20_000}, {"n": 3_000}),
    traps=(
        Case("a 1 and thousands of small numbers", lost_in_a_tree, tolerance=ROUNDINGS),
        Case("numbers that only float64 tells apart", told_apart_by_float64, tolerance=1e-8),
    ),
    tolerance=ROUNDINGS,
)
EXERCISES = (SUM,)

IN_FLOAT64 = (
    "summed in float64",
    "More digits would help, but the exercise is to sum accurately in float32: keep every number np.float32.",
)


# A plain sum is wrong on ordinary numbers already, where a tree is right: after those, a wrong sum is a tree's.
A_TREE = "added as a tree", "It loses less than adding one by one, but rounding errors are still lost: keep them in c."


@SUM.mistake(*A_TREE)
def halves_of_halves(numbers):
    while len(numbers) > 1:
        even = len(numbers) // 2 * 2
        numbers = np.append(numbers[0:even:2] + numbers[1:even:2], numbers[even:])
    return numbers[0]


@SUM.mistake(*A_TREE)
def numpys(numbers):
    return numbers.sum()


@SUM.mistake(
    "added one after the other",
    "Each rounding error is lost for good: keep it in c, and subtract it from the next number before you add that.",
)
def one_after_the_other(numbers):
    return np.cumsum(numbers)[-1]


@SUM.mistake(*IN_FLOAT64)
def in_float64(numbers):
    return numbers.sum(dtype="float64")


@SUM.mistake(*IN_FLOAT64)
def in_float64_rounded(numbers):
    return np.float32(numbers.sum(dtype="float64"))


def with_errors(numbers, given_back, lost):
    """Kahan's loop with other signs: `given_back` of c, and `lost` (s, t, y) -> c."""
    s = c = np.float32(0)
    for x in numbers:
        y = x + given_back * c
        t = s + y
        c = lost(s, t, y)
        s = t
    return s


PLUS, MINUS = np.float32(1), np.float32(-1)


@SUM.mistake(
    "the wrong sign of c", "c = (t − s) − y is the excess that was added; subtract it from the next number: y = x − c."
)
def wrong_sign(numbers):
    return with_errors(numbers, PLUS, lambda s, t, y: (t - s) - y)


@SUM.mistake("s is set to t before c is computed", "c needs the old s: with the new one t − s is 0.")
def too_early(numbers):
    return with_errors(numbers, MINUS, lambda s, t, y: -y)


@SUM.mistake("the brackets are wrong", "c is (t − s) − y; t − (s − y) is another number, and t − (s + y) is always 0.")
def other_brackets(numbers):
    return with_errors(numbers, MINUS, lambda s, t, y: t - (s - y))


@SUM.mistake("a mean", "Return the sum; don't divide.")
def mean(numbers):
    return kahan_sum(numbers) / np.float32(len(numbers))
