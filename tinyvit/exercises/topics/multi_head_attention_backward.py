"""The gradients of multi-head self-attention."""

import numpy as np

from tinyvit import functional as F
from tinyvit.exercises.exercise import Case, Exercise
from tinyvit.exercises.topics import multi_head_attention
from tinyvit.exercises.topics.attention import BY_HEADS, NO_MAXIMUM, careless_softmax
from tinyvit.exercises.topics.multi_head_attention import BY_D, heads_of, join, split, split_by_reshape
from tinyvit.nn.attention import Attention


def inputs(random, B, N, H, d):
    return with_dy(random, *multi_head_attention.inputs(random, B, N, H, d))


def large_scores(random):
    return with_dy(random, *multi_head_attention.large_scores(random))


def with_dy(random, x, qkv_weight, qkv_bias, proj_weight, proj_bias, num_heads):
    return random.standard_normal(x.shape), x, qkv_weight, qkv_bias, proj_weight, num_heads


# -- the steps, and other ways to take them -------------------------------------------------------------------------


def diagonal_softmax(dy, cache):
    dscores = dy @ cache.v.mT * cache.probs * (1 - cache.probs)
    return dscores @ cache.k * cache.scale, dscores.mT @ cache.q * cache.scale, cache.probs.mT @ dy


def careless_backward(dy, cache):
    probs = careless_softmax(cache.q @ cache.k.mT * cache.scale)
    return F.attention_backward(dy, cache._replace(probs=probs))


def projected_back(dy, proj_weight):
    return dy @ proj_weight


def of_tokens(dy, x):
    """Σ dyᵀ x over all tokens: a weight's gradient."""
    return dy.reshape(-1, dy.shape[-1]).T @ x.reshape(-1, x.shape[-1])


def transposed(dy, x):
    return of_tokens(dy, x).T


def all_parts(dqkv, qkv_weight):
    return dqkv @ qkv_weight


def queries_alone(dqkv, qkv_weight):
    D = qkv_weight.shape[1]
    return dqkv[..., :D] @ qkv_weight[:D]


def rows_summed(dy):
    return dy.sum((0, 1))


def backward(
    dy, x, qkv_weight, qkv_bias, proj_weight, num_heads, attention_backward=F.attention_backward, scale=None,
    back=1.0, project=projected_back, split=split, dx_of=all_parts, dproj=of_tokens, proj_of="heads", rows=rows_summed,
):  # fmt: skip
    """All five gradients, with a switch for each step.

    scale   of the scores, None being 1/√d; a function of (D, H)
    back    "unscaled" if their gradient is not scaled
    """
    scale = scale if scale is None else scale(x.shape[-1], num_heads)
    heads, cache = heads_of(x, qkv_weight, qkv_bias, num_heads, scale)
    dq, dk, dv = attention_backward(split(project(dy, proj_weight), num_heads), cache)
    if back == "unscaled":
        dq, dk = dq / cache.scale, dk / cache.scale
    dqkv = np.concatenate([join(part) for part in (dq, dk, dv)], -1)
    dproj_weight = dproj(dy, {"heads": join(heads), "x": x}[proj_of])
    return dx_of(dqkv, qkv_weight), of_tokens(dqkv, x), rows(dqkv), dproj_weight, rows(dy)


BACKWARD = Exercise(
    "multi_head_attention_backward",
    "The gradients of `multi_head_attention`.",
    {"dy": "(B, N, D), the gradient of y", **multi_head_attention.ARGUMENTS, **multi_head_attention.HEADS},
    {"dx": "(B, N, D)", "dqkv_weight": "(3D, D)", "dqkv_bias": "(3D,)", "dproj_weight": "(D, D)", "dproj_bias": "(D,)"},
    right=backward,
    shown=(Attention.forward, Attention.backward, F.attention_backward),
    inputs=inputs,
    sizes=multi_head_attention.SIZES,
    equal=multi_head_attention.EQUAL,
    # Rounding errors of scores near 1000 are multiplied by up to 2000.
    traps=(Case(multi_head_attention.LARGE, large_scores, tolerance=1e-8),),
    written=backward,
)
EXERCISES = (BACKWARD,)

BACKWARD.variant(
    "the softmax's Jacobian is taken as diagonal",
    "Each score changes all probabilities of its query: the Jacobian is a full matrix.",
    attention_backward=diagonal_softmax,
)
BACKWARD.variant(
    "the scale 1/√d is forgotten on the way back",
    "The scores were scaled: their gradient is scaled, too.",
    back="unscaled",
)
BACKWARD.variant("the scale 1/√d is forgotten", "The scores of each head are divided by √d.", scale=lambda D, H: 1.0)
BACKWARD.variant(*BY_D, scale=lambda D, H: D**-0.5)
BACKWARD.variant(*BY_HEADS, scale=lambda D, H: H**-0.5)
BACKWARD.variant(*NO_MAXIMUM, attention_backward=careless_backward)
BACKWARD.variant(
    "the joined heads' gradient is split by a reshape without transpose",
    "(B, N, D) is (B, N, H, d) in memory: reshape to that, then bring H before N by a transpose.",
    split=split_by_reshape,
)
BACKWARD.variant(
    "the projection is forgotten on the way back",
    "Between y and the heads lies proj_weight.",
    project=lambda dy, proj_weight: dy,
)
BACKWARD.variant(
    "wrong transpose of proj_weight",
    "The forward multiplies by proj_weightᵀ, the backward by proj_weight.",
    project=lambda dy, proj_weight: dy @ proj_weight.T,
)
BACKWARD.variant("dproj_weight is made of x", "The projection's input is the joined heads, not x.", proj_of="x")
BACKWARD.variant("wrong transpose in dproj_weight", "Its rows are outputs, its columns inputs.", dproj=transposed)
BACKWARD.variant(
    "dx comes from the queries only",
    "Queries, keys and values all depend on x: add up the three gradients.",
    dx_of=queries_alone,
)
BACKWARD.variant(
    "the broadcast biases are not summed",
    "Each was added to every token of every sample: sum over both axes.",
    rows=lambda dy: dy,
)
BACKWARD.variant(
    "the broadcast biases are summed over samples only",
    "Each was added to every token of every sample.",
    rows=lambda dy: dy.sum(0),
)
