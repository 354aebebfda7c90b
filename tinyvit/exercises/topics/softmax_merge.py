"""Two halves of a softmax put together."""

import numpy as np

from tinyvit.exercises import solutions
from tinyvit.exercises.exercise import Case, Exercise


def halves(random, shift=0.0):
    """(m, l) of each half of a row of scores, the second one `shift` higher."""
    parts = random.standard_normal(4), random.standard_normal(3) + shift
    return tuple(float(number) for part in parts for number in (part.max(), np.exp(part - part.max()).sum()))


def second_is_larger(random):
    return halves(random, 1000.0)


def first_is_larger(random):
    return halves(random, -1000.0)


def overlapping(random):
    """The first half's largest score is the larger one, and both count."""
    m1, l1, m2, l2 = halves(random)
    return max(m1, m2) + 0.5, l1, min(m1, m2), l2


MERGE = Exercise(
    "softmax_merge",
    "The largest score and the sum of exponentials of a row, from those of its two halves (Milakov & Gimelshein 2018, "
    "section 3.1).",
    {
        "m1": "the largest score of the first half",
        "l1": "Σ exp(s − m1) over its scores s",
        "m2": "the largest score of the second half",
        "l2": "Σ exp(s − m2) over its scores s",
    },
    {"m": "a number, the largest score of all", "l": "a number, Σ exp(s − m) over all"},
    right=solutions.softmax_merge,
    shown=(solutions.softmax_merge,),
    inputs=halves,
    sizes=({},),
    traps=(
        Case("the larger scores in the first half", overlapping),
        Case("a second half 1000 higher", second_is_larger),
        Case("a second half 1000 lower", first_is_larger),
    ),
)
EXERCISES = (MERGE,)

SUM = "l1 * np.exp(m1 - m) + l2 * np.exp(m2 - m)"
RESCALED = "l1 was summed with m1 subtracted, l2 with m2: rescale them to m with exp(m1 − m) and exp(m2 − m)."
NO_MAXIMUM = "no maximum is subtracted", "exp(1000) overflows. Rescale each sum to the common m, with exp(m1 − m)."
LARGER = "The largest score of all is the larger one of the two."

MERGE.edit("the second half is left out", "Both halves have a part in the sum.", "return m1, l1")
MERGE.edit("the first half is left out", "Both halves have a part in the sum.", "return m2, l2")
MERGE.edit("a sum is not rescaled", RESCALED, (SUM, "l1 + l2"))
MERGE.edit("rescaled the wrong way", "The exponent is m1 − m, which is never above 0, not m − m1.",
    ("m1 - m", "m - m1"), ("m2 - m", "m - m2"))
MERGE.edit("rescaled by the other half's maximum", "l1 goes with m1, and l2 with m2.", "l1, l2 = l2, l1")
MERGE.edit(*NO_MAXIMUM, (SUM, "(l1 * np.exp(m1) + l2 * np.exp(m2)) / np.exp(m)"))
MERGE.edit(*NO_MAXIMUM, (SUM, "(l1 * np.exp(m1) + l2 * np.exp(m2)) * np.exp(-m)"))
MERGE.edit("the sum of the unshifted exponentials", "l is Σ exp(s − m): m is subtracted from all scores.",
    (" - m)", ")"))
MERGE.edit("the sums are multiplied", "The exponentials of both halves are added.", (" + ", " * "))
MERGE.edit("the maxima are added", LARGER, ("return m,", "return m1 + m2,"))
MERGE.edit("the smaller maximum", LARGER, ("max(", "min("))
MERGE.edit("the mean of the maxima", LARGER, ("max(m1, m2)", "(m1 + m2) / 2"))
MERGE.edit("the logarithm of the sum", "l is the sum itself.", (SUM, f"np.log({SUM})"))
