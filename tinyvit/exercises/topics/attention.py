"""Scaled dot-product attention."""

import numpy as np

from tinyvit import functional as F
from tinyvit.exercises.exercise import Case, Exercise


def inputs(random, B, H, M, N, d, e):
    shapes = (B, H, M, d), (B, H, N, d), (B, H, N, e)
    return tuple(random.standard_normal(shape) for shape in shapes)


def large_scores(random):
    """Of queries and keys with a part in common: the scores of a query differ by little, and are all near 1000."""
    q, k, v = inputs(random, 1, 2, 3, 4, 4, 5)
    q[..., 0], k[..., 0] = 2000.0, 1.0
    return q, k, v


SIZES = {"B": 2, "H": 3, "M": 4, "N": 5, "d": 6, "e": 7}, {"B": 3, "H": 1, "M": 4, "N": 2, "d": 5, "e": 6}
EQUAL = {"B": 3, "H": 3, "M": 3, "N": 3, "d": 3, "e": 3}
ARGUMENTS = {"q": "(B, H, M, d), M queries", "k": "(B, H, N, d), N keys", "v": "(B, H, N, e), a value for each key"}
FORWARD = Exercise(
    "attention",
    "Average the values by the softmax of each query's scores, scaled by 1/√d (Vaswani et al. 2017, eq. 1).",
    ARGUMENTS,
    {"heads": "(B, H, M, e)"},
    right=lambda q, k, v: F.attention(q, k, v)[0],
    shown=(F.attention,),
    inputs=inputs,
    sizes=SIZES,
    equal=EQUAL,
    traps=(Case("scores near 1000", large_scores),),
)
EXERCISES = (FORWARD,)


def softmax(scores, axis=-1):
    exps = np.exp(scores - scores.max(axis, keepdims=True))
    return exps / exps.sum(axis, keepdims=True)


def root(x):
    return x.shape[-1] ** 0.5


NO_SCALE = (
    "the scale 1/√d is forgotten",
    "A sum of d products grows as √d; dividing by √d keeps the softmax from saturating.",
)


@FORWARD.misreading(*NO_SCALE)
def without_scale(q, k, v):
    return q * root(q), k, v


NO_MAXIMUM = (
    "the row's maximum is not subtracted",
    "exp(1000) overflows, and the result is NaN. Subtracting each query's own largest score changes nothing "
    "on paper, since it cancels, and keeps every exp between 0 and 1.",
)


def careless_softmax(scores):
    return np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)


@FORWARD.mistake(*NO_MAXIMUM)
def without_maximum(q, k, v):
    return careless_softmax(q @ k.mT / root(q)) @ v


@FORWARD.misreading("scaled by 1/d", "Divide the scores by the square root of d.")
def scaled_by_d(q, k, v):
    return q / root(q), k, v


@FORWARD.misreading("multiplied by √d", "The scores are divided by √d.")
def times_root(q, k, v):
    return q * q.shape[-1], k, v


@FORWARD.misreading(
    "scaled by the number of keys", "d is the width of queries and keys, the length of the sum in a score."
)
def scaled_by_keys(q, k, v):
    return q * root(q) / k.shape[-2] ** 0.5, k, v


@FORWARD.misreading(
    "scaled by the width of the values", "d is the width of queries and keys, the length of the sum in a score."
)
def scaled_by_values(q, k, v):
    return q * root(q) / root(v), k, v


BY_ALL_HEADS = (
    "the scale is 1/√(H·d) in place of 1/√d",
    "A score is a sum over one head's d numbers, not over those of all heads.",
)
BY_HEADS = (
    "the scale is 1/√H in place of 1/√d",
    "A score is a sum over the d numbers of a head; the number of heads does not matter.",
)


@FORWARD.misreading(*BY_ALL_HEADS)
def scaled_by_all_heads(q, k, v):
    return q / q.shape[1] ** 0.5, k, v


@FORWARD.misreading(*BY_HEADS)
def scaled_by_heads(q, k, v):
    return q * root(q) / q.shape[1] ** 0.5, k, v


@FORWARD.mistake("scaled after the softmax", "The scores are scaled; the probabilities add up to 1 as they are.")
def scaled_late(q, k, v):
    return softmax(q @ k.mT) / root(q) @ v


@FORWARD.mistake(
    "softmax over the queries", "The weights of each query sum to 1 over the keys: the softmax goes over the last axis."
)
def over_queries(q, k, v):
    return softmax(q @ k.mT / root(q), -2) @ v


OVER_HEADS = (
    "softmax over the heads",
    "Heads know nothing of each other: the weights of each query sum to 1 over the keys, the last axis.",
)


@FORWARD.mistake(*OVER_HEADS)
def over_heads(q, k, v):
    return softmax(q @ k.mT / root(q), 1) @ v


def divided_by_sums_over(axis):
    """The maximum of each query is subtracted, and the sum goes over another axis."""

    def formula(q, k, v):
        scores = q @ k.mT / root(q)
        exps = np.exp(scores - scores.max(-1, keepdims=True))
        return exps / exps.sum(axis, keepdims=True) @ v

    return formula


OVER_KEYS = "The weights of each query sum to 1 over the keys: maximum and sum both go over the last axis."
FORWARD.mistake("the softmax's sum goes over the samples", OVER_KEYS)(divided_by_sums_over(0))
FORWARD.mistake("the softmax's sum goes over the heads", OVER_KEYS)(divided_by_sums_over(1))
FORWARD.mistake("the softmax's sum goes over the queries", OVER_KEYS)(divided_by_sums_over(-2))


@FORWARD.misreading("the exponent's sign is wrong", "The higher a score, the higher its weight: exp(s), not exp(−s).")
def exponent_negated(q, k, v):
    return -q, k, v


@FORWARD.mistake("the softmax is forgotten", "The softmax turns scores into weights that are positive and add up to 1.")
def without_softmax(q, k, v):
    return q @ k.mT / root(q) @ v


@FORWARD.mistake("k is not transposed", "A score is a query's product with a key: q kᵀ, (M, d) times (d, N).")
def k_not_transposed(q, k, v):
    return softmax(q @ k / root(q)) @ v


@FORWARD.mistake(
    "wrong transpose of k: all four axes", "With four axes .T reverses all of them; .mT exchanges the last two."
)
def k_reversed(q, k, v):
    return softmax(q @ k.T / root(q)) @ v


@FORWARD.mistake(
    "the probabilities are transposed", "Rows are queries, columns keys: the product with v goes over the keys."
)
def probs_transposed(q, k, v):
    return softmax(q @ k.mT / root(q)).mT @ v
