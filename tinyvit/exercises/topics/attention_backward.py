"""The gradients of scaled dot-product attention."""

from tinyvit import functional as F
from tinyvit.exercises.exercise import Case, Exercise
from tinyvit.exercises.topics import attention
from tinyvit.exercises.topics.attention import SCALE


def inputs(random, B, H, M, N, d, e):
    return random.standard_normal((B, H, M, e)), *attention.inputs(random, B, H, M, N, d, e)


def large_scores(random):
    return random.standard_normal((1, 2, 3, 5)), *attention.large_scores(random)


def right(dy, q, k, v):
    return F.attention_backward(dy, F.attention(q, k, v)[1])


BACKWARD = Exercise(
    "attention_backward",
    "The gradients of scaled dot-product attention, scale 1/√d.",
    {"dy": "(B, H, M, e), the gradient of the heads", **attention.ARGUMENTS},
    {"dq": "(B, H, M, d)", "dk": "(B, H, N, d)", "dv": "(B, H, N, e)"},
    right=right,
    shown=(F.attention, F.attention_backward),
    inputs=inputs,
    sizes=attention.SIZES,
    equal=attention.EQUAL,
    # Rounding errors of scores near 1000 are 1000 times as large, and depend on the order of operations.
    traps=(Case("scores near 1000", large_scores, tolerance=1e-8),),
)
EXERCISES = (BACKWARD,)

SUM = "(dy * probs).sum(-1, keepdims=True)"
NOT_SCALED_BACK = (
    "the scale 1/√d is forgotten on the way back",
    "The scores were scaled: their gradient is scaled, too.",
    ("attention_backward", "scores) * scale", "scores)"),
)
DIAGONAL = (
    "the softmax's Jacobian is taken as diagonal",
    "Each score changes all probabilities of its query: the Jacobian is a full matrix.",
    ("softmax_backward", f"(dy - {SUM})", "dy * (1 - probs)"),
)
LAST_AXIS = "The softmax went over the keys, the last axis, and so does the sum of its gradient."

# -- the scale ----------------------------------------------------------------------------------------------------

BACKWARD.edit(*NOT_SCALED_BACK)
BACKWARD.edit(*attention.NO_SCALE, (SCALE, "1"))
BACKWARD.edit("the scale 1/√d is forgotten where the probabilities are computed", "It is there in the backward, but "
    "the probabilities need it as well.", ("k.mT * scale", "k.mT"))
BACKWARD.edit(*attention.BY_ALL_HEADS, ("q.shape[-1]", "(q.shape[1] * q.shape[-1])"))
BACKWARD.edit(*attention.BY_HEADS, ("q.shape[-1]", "q.shape[1]"))
BACKWARD.edit("divided by the scale on the way back", "The scores were multiplied by 1/√d, so their gradient is "
    "multiplied by it as well, not divided.", ("scores) * scale", "scores) / scale"))
BACKWARD.edit("the scale is applied twice", "Once is enough: if dscores is scaled, dq and dk are not to be scaled "
    "again.", ("scores) * scale", "scores) * scale**2"))

# -- the softmax --------------------------------------------------------------------------------------------------

BACKWARD.edit(*attention.NO_MAXIMUM)
BACKWARD.edit(*DIAGONAL)
BACKWARD.edit("a mean in place of the softmax's sum", "The probabilities are weights that add up to 1: don't divide by "
    "their number.", ("softmax_backward", ".sum(", ".mean("))
BACKWARD.edit("the softmax's sum is not weighted by the probabilities", "You subtract Σ dprobs; weight each by its "
    "probability.", ("softmax_backward", "(dy * probs)", "dy"))
BACKWARD.edit("the softmax's sum is not subtracted", "dprobs times probs is half of the softmax's gradient.",
    ("softmax_backward", f" - {SUM}", ""))
BACKWARD.edit("the softmax is forgotten on the way back", "Between dprobs and dscores lies the softmax.",
    ("softmax_backward(dprobs, scores)", "dprobs"))
BACKWARD.edit("the softmax's sum over the heads", LAST_AXIS, ("softmax_backward", "-1", "1"))
BACKWARD.edit(*attention.OVER_HEADS, ("softmax", "-1", "1"), ("softmax_backward", "-1", "1"))
BACKWARD.edit("the softmax of the forward goes over the heads", attention.OVER_HEADS[1], ("softmax", "-1", "1"))
BACKWARD.edit("the softmax's sum is added", "Raising a score lowers all other probabilities: Σ dprobs·p is subtracted.",
    ("softmax_backward", "(dy - ", "(dy + "))
BACKWARD.edit("the softmax's sum is not multiplied by the probabilities", "Both terms have the factor p: p · (dprobs − "
    "Σ dprobs·p).", ("softmax_backward", f"(dy - {SUM})", f"dy - {SUM}"))
BACKWARD.edit("the softmax's sum over the queries", LAST_AXIS, ("softmax_backward", "-1", "-2"))

# -- the products -------------------------------------------------------------------------------------------------

BACKWARD.edit("wrong transpose in dk", "dk is (N, d): the gradient of a key is a sum over all queries.",
    ("dscores.mT @ q", "dscores @ q"))
BACKWARD.edit("wrong transpose in dq", "dq is (M, d): the gradient of a query is a sum over all keys.",
    ("dscores @ k", "dscores.mT @ k"))
BACKWARD.edit("wrong transpose in dv", "dv is (N, e): the gradient of a value is a sum over all queries.",
    ("softmax(scores).mT", "softmax(scores)"))
BACKWARD.edit("wrong transpose of v in dprobs", "dprobs is (M, N): dy times vᵀ.", ("v.mT", "v"))
BACKWARD.edit("q and k exchanged", "A query's gradient is a sum of keys, a key's a sum of queries.",
    ("dscores @ k, dscores.mT @ q", "dscores @ q, dscores.mT @ k"))
BACKWARD.edit("scores in place of probabilities in dv", "The values were weighted by the probabilities.",
    ("softmax(scores).mT", "scores.mT"))
