"""Two halves of a softmax put together."""

import numpy as np

from tinyvit.exercises.domain import Case
from tinyvit.exercises.exercise import exercise


def halves(random, shift=0.0):
    """(m, l) of each half of a row of scores, the second one `shift` higher."""
    parts = random.standard_normal(4), random.standard_normal(3) + shift
    return tuple(float(number) for part in parts for number in (part.max(), np.exp(part - part.max()).sum()))


def overlapping(random):
    """All scores are negative; the first half's largest one is the larger one, and both count."""
    m1, l1, m2, l2 = halves(random)
    return max(m1, m2) - 5, l1, min(m1, m2) - 5.5, l2


def tied(random):
    m1, l1, _, l2 = halves(random)
    return m1, l1, m1, l2


@exercise(
    halves, "",
    extra=(
        Case("negative scores, the larger ones in the first half", overlapping),
        Case("equal maxima", tied),
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
