"""The gradients of the worked example, from the loss back to the patches and the class token."""

import numpy as np

from tinyvit import functional as F
from tinyvit.exercises.exercise import Exercise
from tinyvit.models import worked_example as example


def inputs(random):
    return (random.standard_normal(example.PATCHES.shape),)


def gradient(patches, dlogits=None, pool=F.pool_token_backward, norm=F.layernorm_backward, softmax=None, scale=None,
             ways=("residual", "queries", "keys", "values")):  # fmt: skip
    """dpatches and dcls_token; with arguments, those of somebody who takes a step in another way, or leaves one out.

    Past the attention and to the queries, only the class token gets a gradient: only the class token is read.
    """
    _, steps = example.forward(patches)
    dlogits = F.cross_entropy_backward(1.0, steps["c_loss"]) if dlogits is None else dlogits(steps["c_loss"].probs)
    dz1, *_ = norm(pool(F.linear_backward(dlogits, steps["c_head"])[0], steps["c_pool"]), steps["c_norm"])
    dheads, cache = dz1[:, None], steps["c_attention"]
    probs, dprobs = cache.probs, dheads @ cache.v.mT
    dscores = probs * (dprobs - (dprobs * probs).sum(-1, keepdims=True)) if softmax is None else softmax(dprobs, probs)
    scale = cache.scale if scale is None else scale
    parts = {"keys": scale * dscores.mT @ cache.q, "values": probs.mT @ dheads, "queries": scale * dscores @ cache.k}
    dz0 = sum((parts | {"residual": dheads})[way] for way in ways)[:, 0]
    return dz0[:, 1:], dz0[:, :1]


def right(patches):
    gradients = example.backward(example.forward(patches)[1])
    return gradients["dpatches"], gradients["dcls_token"]


BACKWARD = Exercise(
    "worked_example_backward",
    "The gradients of the worked example's loss: of its patches and its class token. All else that it needs is in "
    "tinyvit.models.worked_example: CLS_TOKEN, POSITIONS, NORM_WEIGHT, NORM_BIAS, HEAD_WEIGHT, HEAD_BIAS, LABEL.",
    {"patches": "(1, 4, 4)"},
    {"dpatches": "(1, 4, 4)", "dcls_token": "(1, 1, 4)"},
    right=right,
    shown=(example.forward, example.backward),
    inputs=inputs,
    sizes=({}, {}),
)
EXERCISES = (BACKWARD,)


@BACKWARD.mistake(
    "the way through the keys is forgotten",
    "A patch is looked at for what it holds, too: its key stands in the class token's scores, and through them it "
    "decides how much is taken from every other.",
)
def without_keys(patches):
    return gradient(patches, ways=("residual", "queries", "values"))


@BACKWARD.mistake(
    "the way through the values is forgotten",
    "The class token's output is a weighted sum of the patches: each gets the gradient times its weight.",
)
def without_values(patches):
    return gradient(patches, ways=("residual", "queries", "keys"))


@BACKWARD.mistake(
    "the way through the queries is forgotten",
    "The class token asks: its query stands in all its scores, and each score's gradient comes back to it.",
)
def without_queries(patches):
    return gradient(patches, ways=("residual", "keys", "values"))


@BACKWARD.mistake(
    "the residual's gradient is forgotten", "z¹ is z⁰ plus the attention: dz¹ also goes past the attention, to z⁰."
)
def without_residual(patches):
    return gradient(patches, ways=("queries", "keys", "values"))


@BACKWARD.mistake("the scale is forgotten", "The scores were multiplied by 1/√4, and so is their gradient.")
def without_scale(patches):
    return gradient(patches, scale=1.0)


@BACKWARD.mistake(
    "the Jacobian of the softmax is taken as diagonal",
    "p(1 − p) is the derivative with respect to its own score; but each score changes the whole row.",
)
def diagonal(patches):
    return gradient(patches, softmax=lambda dprobs, probs: dprobs * probs * (1 - probs))


@BACKWARD.mistake(
    "the layer norm's means are forgotten",
    "Mean and spread depend on every number of the token: what is left of the gradient has the mean 0, and no part "
    "along the normalised token.",
)
def without_means(patches):
    return gradient(patches, norm=lambda dy, cache: (cache.rstd * cache.weight * dy,))


@BACKWARD.mistake(
    "the gradient enters at every token", "The head reads the class token alone; the patches' rows are zero there."
)
def at_every_token(patches):
    return gradient(patches, pool=lambda dfeature, _: np.repeat(dfeature[:, None], 5, axis=1))


@BACKWARD.mistake("the target is not subtracted", "The gradient of the logits is π minus 1 at the right class.")
def without_target(patches):
    return gradient(patches, dlogits=lambda probs: probs)
