"""A float32 sum that is nearly as accurate as with twice as many digits."""

import numpy as np

from tinyvit.exercises.domain import Case
from tinyvit.exercises.exercise import exercise

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


@exercise(
    inputs, "n=20000,3000", "",
    extra=(
        Case("a 1 and thousands of small numbers", lost_in_a_tree, tolerance=ROUNDINGS),
        Case("numbers that only float64 tells apart", told_apart_by_float64, tolerance=1e-8),
    ),
    tolerance=ROUNDINGS,
)
def kahan_sum(numbers):
    """Kahan's sum (1965), in float32: add one by one, keep each rounding error, and subtract it from the next number.

      numbers  (n,), float32

    returns
      s  a number
    """
    total = lost = np.float32(0)
    for number in numbers:
        rest = number - lost
        new = total + rest
        lost = (new - total) - rest
        total = new
    return total
