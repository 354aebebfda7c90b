"""The gradients of multi-head self-attention."""

import numpy as np

from tinyvit import functional as F
from tinyvit.exercises.exercise import Case, Exercise
from tinyvit.exercises.topics import multi_head_attention
from tinyvit.exercises.topics.attention import BY_HEADS, NO_MAXIMUM, careless_softmax
from tinyvit.exercises.topics.multi_head_attention import BY_D, heads_of, join, join_by_reshape, split, split_by_reshape
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


def put_together(parts, order, num_heads):
    """dqkv of the gradients of queries, keys and values, each (B, N, D)."""
    if order == "heads first":
        B, N, D = parts[0].shape
        return np.stack([part.reshape(B, N, num_heads, -1) for part in parts], 3).reshape(B, N, 3 * D)
    return np.concatenate([parts[part] for part in order], -1)


def rows_summed(dy):
    return dy.sum((0, 1))


def backward(
    dy, x, qkv_weight, qkv_bias, proj_weight, num_heads, attention_backward=F.attention_backward, scale=None,
    back=1.0, project=projected_back, split=split, dx_of=all_parts, dproj=of_tokens, proj_of="heads", rows=rows_summed,
    qkv_of=None, join_back=join, order=(0, 1, 2),
):  # fmt: skip
    """All five gradients, with a switch for each step.

    scale   of the scores, None being 1/√d; a function of (D, H)
    qkv_of  what dqkv_weight is made of, None being x
    back    "unscaled" if their gradient is not scaled
    """
    scale = scale if scale is None else scale(x.shape[-1], num_heads)
    heads, cache = heads_of(x, qkv_weight, qkv_bias, num_heads, scale)
    dq, dk, dv = attention_backward(split(project(dy, proj_weight), num_heads), cache)
    if back == "unscaled":
        dq, dk = dq / cache.scale, dk / cache.scale
    dqkv = put_together([join_back(part) for part in (dq, dk, dv)], order, num_heads)
    dproj_weight = dproj(dy, {"heads": join(heads), "x": x}[proj_of])
    return dx_of(dqkv, qkv_weight), of_tokens(dqkv, x if qkv_of is None else qkv_of), rows(dqkv), dproj_weight, rows(dy)


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
BACKWARD.variant(
    "the joined heads' gradient is joined by a reshape",
    "dq, dk and dv are (B, H, N, d): bring N before H by a transpose, then reshape to (B, N, D).",
    join_back=join_by_reshape,
)
BACKWARD.variant(
    "the heads are split and joined by reshapes on the way back",
    "(B, N, D) is (B, N, H, d) in memory: a transpose stands between that and (B, H, N, d), there and back.",
    split=split_by_reshape,
    join_back=join_by_reshape,
)
BACKWARD.variant(
    "dq, dk and dv stand in another order in dqkv: queries and values exchanged",
    "dqkv has the order of qkv: queries, keys, values.",
    order=(2, 1, 0),
)
BACKWARD.variant(
    "dq, dk and dv stand in another order in dqkv: queries and keys exchanged",
    "dqkv has the order of qkv: queries, keys, values.",
    order=(1, 0, 2),
)
BACKWARD.variant(
    "dq, dk and dv stand in another order in dqkv: keys and values exchanged",
    "dqkv has the order of qkv: queries, keys, values.",
    order=(0, 2, 1),
)


def reordered(order, dy, x, qkv_weight, qkv_bias, proj_weight, num_heads):
    """All gradients, if the rows of qkv_weight and qkv_bias are taken in another order."""
    dx, dqkv_weight, dqkv_bias, *others = backward(dy, x, qkv_weight[order], qkv_bias[order], proj_weight, num_heads)
    return dx, dqkv_weight[np.argsort(order)], dqkv_bias[np.argsort(order)], *others


def exchanged(first, second):
    def formula(dy, x, qkv_weight, *others):
        thirds = np.split(np.arange(len(qkv_weight)), 3)
        thirds[first], thirds[second] = thirds[second], thirds[first]
        return reordered(np.concatenate(thirds), dy, x, qkv_weight, *others)

    return formula


ROWS = "The first D rows of qkv_weight make the queries, the next the keys, the last the values."
BACKWARD.mistake("queries and keys exchanged", ROWS)(exchanged(0, 1))
BACKWARD.mistake("keys and values exchanged", ROWS)(exchanged(1, 2))
BACKWARD.mistake("queries and values exchanged", ROWS)(exchanged(0, 2))


@BACKWARD.mistake("qkv is read in the order (H, 3, d)", "It is (3, H, d) in memory: first all heads' queries.")
def heads_first(dy, x, qkv_weight, qkv_bias, proj_weight, num_heads):
    order = np.arange(len(qkv_weight)).reshape(num_heads, 3, -1).transpose(1, 0, 2).ravel()
    return reordered(order, dy, x, qkv_weight, qkv_bias, proj_weight, num_heads)


BACKWARD.variant(
    "dqkv is put together in the order (H, 3, d)",
    "qkv was (3, H, d): first all heads' queries, then their keys, then their values.",
    order="heads first",
)


@BACKWARD.misreading("qkv_bias is forgotten where the forward is computed again", "q, k and v have a bias.")
def without_qkv_bias(dy, x, qkv_weight, qkv_bias, proj_weight, num_heads):
    return dy, x, qkv_weight, 0 * qkv_bias, proj_weight, num_heads


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
