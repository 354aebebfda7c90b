"""The gradients of scaled dot-product attention."""

from tinyvit import functional as F
from tinyvit.exercises.exercise import Case, Exercise
from tinyvit.exercises.topics import attention
from tinyvit.exercises.topics.attention import root, softmax


def inputs(random, B, H, M, N, d, e):
    return random.standard_normal((B, H, M, e)), *attention.inputs(random, B, H, M, N, d, e)


def large_scores(random):
    return random.standard_normal((1, 2, 3, 5)), *attention.large_scores(random)


def right(dy, q, k, v):
    return F.attention_backward(dy, F.attention(q, k, v)[1])


def standard(q):
    return 1 / root(q)


def one(q):
    return 1.0


def softmax_gradient(dprobs, probs):
    return probs * (dprobs - (dprobs * probs).sum(-1, keepdims=True))


def as_it_is(x):
    return x


def transpose(x):
    return x.mT


def written(
    dy, q, k, v, scale=standard, back=None, softmax=softmax, jacobian=softmax_gradient, values=transpose,
    for_dq=as_it_is, for_dk=transpose, for_dv=transpose, exchanged=False, dv_of="probs",
):  # fmt: skip
    """All three gradients, with a switch for each step.

    scale, back              of the scores, and of their gradient; the same if nothing else is said
    values                   what dy is multiplied with to make dprobs
    for_dq, for_dk, for_dv   what is made of dscores, or of the probabilities, before they are multiplied
    """
    scores = q @ k.mT * scale(q)
    probs = softmax(scores)
    dscores = jacobian(dy @ values(v), probs) * (back or scale)(q)
    keys, queries = (q, k) if exchanged else (k, q)
    return for_dq(dscores) @ keys, for_dk(dscores) @ queries, for_dv({"probs": probs, "scores": scores}[dv_of]) @ dy


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
    written=written,
)
EXERCISES = (BACKWARD,)

# -- the scale ----------------------------------------------------------------------------------------------------

BACKWARD.variant(
    "the scale 1/√d is forgotten on the way back",
    "The scores were scaled on the way forward: their gradient is scaled, too.",
    back=one,
)
BACKWARD.variant(*attention.NO_SCALE, scale=one)
BACKWARD.variant(
    "the scale 1/√d is forgotten where the probabilities are computed",
    "It is there in the backward, but the probabilities need it as well.",
    scale=one,
    back=standard,
)
BACKWARD.variant(*attention.BY_ALL_HEADS, scale=lambda q: (q.shape[1] * q.shape[-1]) ** -0.5)
BACKWARD.variant(*attention.BY_HEADS, scale=lambda q: q.shape[1] ** -0.5)
BACKWARD.variant(
    "divided by the scale on the way back",
    "The scores were multiplied by 1/√d, so their gradient is multiplied by it as well, not divided.",
    back=root,
)
BACKWARD.variant(
    "the scale is applied twice",
    "Once is enough: if dscores is scaled, dq and dk are not to be scaled again.",
    back=lambda q: 1 / q.shape[-1],
)

# -- the softmax --------------------------------------------------------------------------------------------------

BACKWARD.variant(*attention.NO_MAXIMUM, softmax=attention.careless_softmax)
BACKWARD.variant(
    "the softmax's Jacobian is taken as diagonal",
    "Each score changes all probabilities of its query: the Jacobian is a full matrix.",
    jacobian=lambda dprobs, probs: dprobs * probs * (1 - probs),
)
BACKWARD.variant(
    "a mean in place of the softmax's sum",
    "The probabilities are weights that add up to 1: don't divide by their number.",
    jacobian=lambda dprobs, probs: probs * (dprobs - (dprobs * probs).mean(-1, keepdims=True)),
)
BACKWARD.variant(
    "the softmax's sum is not weighted by the probabilities",
    "You subtract Σ dprobs; weight each by its probability.",
    jacobian=lambda dprobs, probs: probs * (dprobs - dprobs.sum(-1, keepdims=True)),
)
BACKWARD.variant(
    "the softmax's sum is not subtracted",
    "dprobs times probs is half of the softmax's gradient.",
    jacobian=lambda dprobs, probs: dprobs * probs,
)
BACKWARD.variant(
    "the softmax is forgotten on the way back",
    "Between dprobs and dscores lies the softmax.",
    jacobian=lambda dprobs, probs: dprobs,
)
BACKWARD.variant(
    "the softmax's sum over the heads",
    "The softmax went over the keys, the last axis, and so does the sum of its gradient.",
    jacobian=lambda dprobs, probs: probs * (dprobs - (dprobs * probs).sum(1, keepdims=True)),
)
BACKWARD.variant(
    *attention.OVER_HEADS,
    softmax=lambda scores: attention.softmax(scores, 1),
    jacobian=lambda dprobs, probs: probs * (dprobs - (dprobs * probs).sum(1, keepdims=True)),
)
BACKWARD.variant(
    "the softmax of the forward goes over the heads", attention.OVER_HEADS[1],
    softmax=lambda scores: attention.softmax(scores, 1),
)
BACKWARD.variant(
    "the softmax's sum is added",
    "Raising a score lowers all other probabilities: Σ dprobs·p is subtracted.",
    jacobian=lambda dprobs, probs: probs * (dprobs + (dprobs * probs).sum(-1, keepdims=True)),
)
BACKWARD.variant(
    "the softmax's sum is not multiplied by the probabilities",
    "Both terms have the factor p: p · (dprobs − Σ dprobs·p).",
    jacobian=lambda dprobs, probs: dprobs * probs - (dprobs * probs).sum(-1, keepdims=True),
)
BACKWARD.variant(
    "the softmax's sum over the queries",
    "The softmax went over the keys, the last axis, and so does the sum of its gradient.",
    jacobian=lambda dprobs, probs: probs * (dprobs - (dprobs * probs).sum(-2, keepdims=True)),
)

# -- the products -------------------------------------------------------------------------------------------------

BACKWARD.variant(
    "wrong transpose in dk", "dk is (N, d): the gradient of a key is a sum over all queries.", for_dk=as_it_is
)
BACKWARD.variant(
    "wrong transpose in dq", "dq is (M, d): the gradient of a query is a sum over all keys.", for_dq=transpose
)
BACKWARD.variant(
    "wrong transpose in dv", "dv is (N, e): the gradient of a value is a sum over all queries.", for_dv=as_it_is
)
BACKWARD.variant("wrong transpose of v in dprobs", "dprobs is (M, N): dy times vᵀ.", values=as_it_is)
BACKWARD.variant("q and k exchanged", "A query's gradient is a sum of keys, a key's a sum of queries.", exchanged=True)
BACKWARD.variant(
    "scores in place of probabilities in dv", "The values were weighted by the probabilities.", dv_of="scores"
)
