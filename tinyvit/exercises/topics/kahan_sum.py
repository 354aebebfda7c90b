"""A float32 sum that is nearly as accurate as with twice as many digits."""

import numpy as np

from tinyvit.exercises.exercise import Case, exercise, lesson

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
    inputs, ({"n": 20_000}, {"n": 3_000}),
    traps=(
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


lesson(kahan_sum, """
Hints:
  What of a small number is lost when it is added to a large sum, and how can it be computed afterwards?
  Two running numbers: the sum, and what the last addition lost.
  y = x − c, t = s + y, c = (t − s) − y, s = t, in this order and all in float32.

Mistakes:
  added as a tree
    It loses less than adding one by one, but rounding errors are still lost: keep them in c.
    `while len(numbers) > 1: numbers = np.append(numbers[:-1:2] + numbers[1::2], numbers[len(numbers) // 2 * 2 :])`
  added as a tree
    It loses less than adding one by one, but rounding errors are still lost: keep them in c.
    `return total` → `return numbers.sum()`
  added one after the other
    Each rounding error is lost for good: keep it in c, and subtract it from the next number before you add that.
    `number - lost` → `number`
  summed in float64
    More digits would help, but the exercise is to sum accurately in float32: keep every number np.float32.
    `return total` → `return numbers.sum(dtype="float64")`
  summed in float64
    More digits would help, but the exercise is to sum accurately in float32: keep every number np.float32.
    `return total` → `return np.float32(numbers.sum(dtype="float64"))`
  the wrong sign of c
    c = (t − s) − y is the excess that was added; subtract it from the next number: y = x − c.
    `number - lost` → `number + lost`
  s is set to t before c is computed
    c needs the old s: with the new one t − s is 0.
    `lost = (new` → `total = new; lost = (new`
  the brackets are wrong
    c is (t − s) − y; t − (s − y) is another number, and t − (s + y) is always 0.
    `(new - total) - rest` → `new - (total - rest)`
  a mean
    Return the sum; don't divide.
    `return total` → `return total / np.float32(len(numbers))`
""")
