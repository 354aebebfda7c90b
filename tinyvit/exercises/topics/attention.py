"""Scaled dot-product attention."""

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

SCALE = "q.shape[-1] ** -0.5"
NO_SCALE = (
    "the scale 1/√d is forgotten",
    "A sum of d products grows as √d; dividing by √d keeps the softmax from saturating.",
)
NO_MAXIMUM = (
    "the row's maximum is not subtracted",
    "exp(1000) overflows, and the result is NaN. Subtracting each query's own largest score changes nothing "
    "on paper, since it cancels, and keeps every exp between 0 and 1.",
    ("softmax", " - x.max(-1, keepdims=True)", ""),
)
BY_ALL_HEADS = (
    "the scale is 1/√(H·d) in place of 1/√d",
    "A score is a sum over one head's d numbers, not over those of all heads.",
)
BY_HEADS = (
    "the scale is 1/√H in place of 1/√d",
    "A score is a sum over the d numbers of a head; the number of heads does not matter.",
)
WIDTH = "d is the width of queries and keys, the length of the sum in a score."
OVER_HEADS = (
    "softmax over the heads",
    "Heads know nothing of each other: the weights of each query sum to 1 over the keys, the last axis.",
)
OVER_KEYS = "The weights of each query sum to 1 over the keys: maximum and sum both go over the last axis."

FORWARD.edit(*NO_SCALE, (SCALE, "1"))
FORWARD.edit(*NO_MAXIMUM)
FORWARD.edit("scaled by 1/d", "Divide the scores by the square root of d.", (SCALE, "q.shape[-1] ** -1.0"))
FORWARD.edit("multiplied by √d", "The scores are divided by √d.", (SCALE, "q.shape[-1] ** 0.5"))
FORWARD.edit("scaled by the number of keys", WIDTH, ("q.shape[-1]", "k.shape[-2]"))
FORWARD.edit("scaled by the width of the values", WIDTH, ("q.shape[-1]", "v.shape[-1]"))
FORWARD.edit(*BY_ALL_HEADS, ("q.shape[-1]", "(q.shape[1] * q.shape[-1])"))
FORWARD.edit(*BY_HEADS, ("q.shape[-1]", "q.shape[1]"))
FORWARD.edit("scaled after the softmax", "The scores are scaled; the probabilities add up to 1 as they are.",
    (SCALE, "1"), ("probs @ v", f"probs * {SCALE} @ v"))
FORWARD.edit("softmax over the queries", "The weights of each query sum to 1 over the keys: the softmax goes over the "
    "last axis.", ("softmax", "-1", "-2"))
FORWARD.edit(*OVER_HEADS, ("softmax", "-1", "1"))
FORWARD.edit("the softmax's sum goes over the samples", OVER_KEYS, ("softmax", "exps.sum(-1", "exps.sum(0"))
FORWARD.edit("the softmax's sum goes over the heads", OVER_KEYS, ("softmax", "exps.sum(-1", "exps.sum(1"))
FORWARD.edit("the softmax's sum goes over the queries", OVER_KEYS, ("softmax", "exps.sum(-1", "exps.sum(-2"))
FORWARD.edit("the exponent's sign is wrong", "The higher a score, the higher its weight: exp(s), not exp(−s).",
    "q = -q")
FORWARD.edit("the softmax is forgotten", "The softmax turns scores into weights that are positive and add up to 1.",
    ("softmax(scores)", "scores"))
FORWARD.edit("k is not transposed", "A score is a query's product with a key: q kᵀ, (M, d) times (d, N).",
    ("k.mT", "k"))
FORWARD.edit("wrong transpose of k: all four axes", "With four axes .T reverses all of them; .mT exchanges the last "
    "two.", ("k.mT", "k.T"))
FORWARD.edit("the probabilities are transposed", "Rows are queries, columns keys: the product with v goes over the "
    "keys.", ("probs @ v", "probs.mT @ v"))
