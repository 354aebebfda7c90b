"""Two halves of a softmax put together."""

import numpy as np

from tinyvit.exercises.exercise import Case, exercise, lesson


def halves(random, shift=0.0):
    """(m, l) of each half of a row of scores, the second one `shift` higher."""
    parts = random.standard_normal(4), random.standard_normal(3) + shift
    return tuple(float(number) for part in parts for number in (part.max(), np.exp(part - part.max()).sum()))


def overlapping(random):
    """All scores are negative; the first half's largest one is the larger one, and both count."""
    m1, l1, m2, l2 = halves(random)
    return max(m1, m2) - 5, l1, min(m1, m2) - 5.5, l2


@exercise(
    halves, ({},),
    traps=(
        Case("negative scores, the larger ones in the first half", overlapping),
        Case("a second half 1000 higher", lambda random: halves(random, 1000.0)),
        Case("a second half 1000 lower", lambda random: halves(random, -1000.0)),
    ),
)
def softmax_merge(m1, l1, m2, l2):
    """The largest score and the sum of exponentials of a row, from those of its two halves (Milakov & Gimelshein 2018,
    section 3.1).

      m1  the largest score of the first half
      l1  Σ exp(s − m1) over its scores s
      m2  the largest score of the second half
      l2  Σ exp(s − m2) over its scores s

    returns
      m  a number, the largest score of all
      l  a number, Σ exp(s − m) over all
    """
    m = max(m1, m2)
    return m, l1 * np.exp(m1 - m) + l2 * np.exp(m2 - m)


lesson(softmax_merge, """
Hints:
  Both sums were taken with their own maximum. What is the common one?
  m is the larger of both; each sum is multiplied by an exponential before they are added.
  m = max(m₁, m₂), l = l₁ e^(m₁ − m) + l₂ e^(m₂ − m).

Mistakes:
  the second half is left out
    Both halves have a part in the sum.
    `return m1, l1`
  the first half is left out
    Both halves have a part in the sum.
    `return m2, l2`
  a sum is not rescaled
    l1 was summed with m1 subtracted, l2 with m2: rescale them to m with exp(m1 − m) and exp(m2 − m).
    `l1 * np.exp(m1 - m) + l2 * np.exp(m2 - m)` → `l1 + l2`
  rescaled the wrong way
    The exponent is m1 − m, which is never above 0, not m − m1.
    `m1 - m` → `m - m1`
    `m2 - m` → `m - m2`
  rescaled by the other half's maximum
    l1 goes with m1, and l2 with m2.
    `l1, l2 = l2, l1`
  no maximum is subtracted
    exp(1000) overflows. Rescale each sum to the common m, with exp(m1 − m).
    `l1 * np.exp(m1 - m) + l2 * np.exp(m2 - m)` → `(l1 * np.exp(m1) + l2 * np.exp(m2)) / np.exp(m)`
  no maximum is subtracted
    exp(1000) overflows. Rescale each sum to the common m, with exp(m1 − m).
    `l1 * np.exp(m1 - m) + l2 * np.exp(m2 - m)` → `(l1 * np.exp(m1) + l2 * np.exp(m2)) * np.exp(-m)`
  the sum of the unshifted exponentials
    l is Σ exp(s − m): m is subtracted from all scores.
    ` - m)` → `)`
  the sums are multiplied
    The exponentials of both halves are added.
    ` + ` → ` * `
  the maxima are added
    The largest score of all is the larger one of the two.
    `return m,` → `return m1 + m2,`
  the maximum starts from 0
    All scores may be negative: m is the larger one of m1 and m2.
    `max(m1, m2)` → `max(m1, m2, 0)`
  the smaller maximum
    The largest score of all is the larger one of the two.
    `max(` → `min(`
  the mean of the maxima
    The largest score of all is the larger one of the two.
    `max(m1, m2)` → `(m1 + m2) / 2`
  the logarithm of the sum
    l is the sum itself.
    `l1 * np.exp(m1 - m) + l2 * np.exp(m2 - m)` → `np.log(l1 * np.exp(m1 - m) + l2 * np.exp(m2 - m))`
""")
