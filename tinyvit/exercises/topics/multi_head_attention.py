"""Multi-head self-attention."""

import numpy as np

from tinyvit import functional as F
from tinyvit.exercises.exercise import Case, Exercise
from tinyvit.exercises.topics.attention import BY_HEADS, NO_MAXIMUM, careless_softmax
from tinyvit.nn.attention import Attention


def inputs(random, B, N, H, d):
    D = H * d
    shapes = (B, N, D), (3 * D, D), (3 * D,), (D, D), (D,)
    return *(random.standard_normal(shape) * 0.7 for shape in shapes), H


def large_scores(random):
    """Queries and keys have a part in common, from their biases: the scores of a query are all near 1000."""
    x, qkv_weight, qkv_bias, *rest, H = inputs(random, 2, 3, 2, 4)
    first = np.arange(H) * 4                                                 # entries of q, and D further on those of k
    for part, value in ((0, 2000.0), (8, 1.0)):
        qkv_weight[first + part], qkv_bias[first + part] = 0.0, value
    return x, qkv_weight, qkv_bias, *rest, H


# -- the parts --------------------------------------------------------------------------------------------------


def split(x, num_heads):
    """(B, N, D) -> (B, H, N, d)"""
    B, N, D = x.shape
    return x.reshape(B, N, num_heads, D // num_heads).transpose(0, 2, 1, 3)


def join(heads):
    """(B, H, N, d) -> (B, N, D)"""
    B, H, N, d = heads.shape
    return heads.transpose(0, 2, 1, 3).reshape(B, N, H * d)


def split_by_reshape(x, num_heads):
    B, N, D = x.shape
    return x.reshape(B, num_heads, N, D // num_heads)


def join_by_reshape(heads):
    B, H, N, d = heads.shape
    return heads.reshape(B, N, H * d)


def split_interleaved(x, num_heads):
    B, N, D = x.shape
    return x.reshape(B, N, D // num_heads, num_heads).transpose(0, 3, 1, 2)


def projected(x, qkv_weight, qkv_bias):
    """q, k and v, each (B, N, D)."""
    return np.split(x @ qkv_weight.T + qkv_bias, 3, -1)


def heads_of(x, qkv_weight, qkv_bias, num_heads, scale=None, split=split):
    q, k, v = (split(part, num_heads) for part in projected(x, qkv_weight, qkv_bias))
    return F.attention(q, k, v, scale=scale)


def forward(x, qkv_weight, qkv_bias, proj_weight, proj_bias, num_heads):
    return join(heads_of(x, qkv_weight, qkv_bias, num_heads)[0]) @ proj_weight.T + proj_bias


SIZES = {"B": 2, "N": 5, "H": 3, "d": 4}, {"B": 1, "N": 3, "H": 2, "d": 5}
EQUAL = {"B": 2, "N": 2, "H": 2, "d": 2}
LARGE = "scores near 1000"
ARGUMENTS = {
    "x": "(B, N, D)",
    "qkv_weight": "(3D, D): the rows of queries, keys and values, one after the other",
    "qkv_bias": "(3D,)",
    "proj_weight": "(D, D)",
}
HEADS = {"num_heads": "H; head h has the entries from h·d on of q, k and v, where d = D/H"}
FORWARD = Exercise(
    "multi_head_attention",
    "Project x to q, k and v, split them into H heads, attend in each (scale 1/√d), join the heads, project.",
    {**ARGUMENTS, "proj_bias": "(D,)", **HEADS},
    {"y": "(B, N, D)"},
    right=forward,
    shown=(Attention.forward,),
    inputs=inputs,
    sizes=SIZES,
    equal=EQUAL,
    traps=(Case(LARGE, large_scores),),
)
EXERCISES = (FORWARD,)

BY_D = "the scale is 1/√(H·d) in place of 1/√d", "A score is a sum over one head's d numbers, not over all D = H·d."


def queries_times(factor, qkv_weight, qkv_bias):
    """Weight and bias by which the queries, and with them the scores, become `factor` times as large."""
    D = qkv_weight.shape[1]
    factors = np.repeat([factor, 1.0], [D, 2 * D])
    return qkv_weight * factors[:, None], qkv_bias * factors


@FORWARD.misreading("the scale 1/√d is forgotten", "The scores of each head are divided by √d.")
def without_scale(x, qkv_weight, qkv_bias, proj_weight, proj_bias, num_heads):
    d = x.shape[-1] // num_heads
    return x, *queries_times(d**0.5, qkv_weight, qkv_bias), proj_weight, proj_bias, num_heads


@FORWARD.misreading(*BY_D)
def scaled_by_width(x, qkv_weight, qkv_bias, proj_weight, proj_bias, num_heads):
    return x, *queries_times(num_heads**-0.5, qkv_weight, qkv_bias), proj_weight, proj_bias, num_heads


@FORWARD.misreading(*BY_HEADS)
def scaled_by_heads(x, qkv_weight, qkv_bias, proj_weight, proj_bias, num_heads):
    d = x.shape[-1] // num_heads
    return x, *queries_times((d / num_heads) ** 0.5, qkv_weight, qkv_bias), proj_weight, proj_bias, num_heads


@FORWARD.misreading("scaled by 1/d", "Divide the scores by the square root of d.")
def scaled_by_d(x, qkv_weight, qkv_bias, proj_weight, proj_bias, num_heads):
    d = x.shape[-1] // num_heads
    return x, *queries_times(d**-0.5, qkv_weight, qkv_bias), proj_weight, proj_bias, num_heads


@FORWARD.mistake(*NO_MAXIMUM)
def without_maximum(x, qkv_weight, qkv_bias, proj_weight, proj_bias, num_heads):
    _, cache = heads_of(x, qkv_weight, qkv_bias, num_heads)
    heads = careless_softmax(cache.q @ cache.k.mT * cache.scale) @ cache.v
    return join(heads) @ proj_weight.T + proj_bias


@FORWARD.misreading("one head", "Each head has its own softmax, over the scores of its own d numbers.")
def one_head(x, qkv_weight, qkv_bias, proj_weight, proj_bias, num_heads):
    return x, qkv_weight, qkv_bias, proj_weight, proj_bias, 1


@FORWARD.mistake(
    "heads are split by a reshape without transpose",
    "(B, N, D) is (B, N, H, d) in memory: reshape to that, then bring H before N by a transpose.",
)
def split_without_transpose(x, qkv_weight, qkv_bias, proj_weight, proj_bias, num_heads):
    heads, _ = heads_of(x, qkv_weight, qkv_bias, num_heads, split=split_by_reshape)
    return join(heads) @ proj_weight.T + proj_bias


@FORWARD.mistake(
    "heads are split and joined by a reshape without transpose",
    "(B, N, D) is (B, N, H, d) in memory: reshape to that, then bring H before N by a transpose; and back by another.",
)
def both_without_transpose(x, qkv_weight, qkv_bias, proj_weight, proj_bias, num_heads):
    heads, _ = heads_of(x, qkv_weight, qkv_bias, num_heads, split=split_by_reshape)
    return join_by_reshape(heads) @ proj_weight.T + proj_bias


@FORWARD.mistake(
    "heads are joined by a reshape without transpose", "(B, H, N, d) has to become (B, N, H, d) by a transpose first."
)
def joined_without_transpose(x, qkv_weight, qkv_bias, proj_weight, proj_bias, num_heads):
    return join_by_reshape(heads_of(x, qkv_weight, qkv_bias, num_heads)[0]) @ proj_weight.T + proj_bias


@FORWARD.mistake(
    "heads are interleaved", "D is H times d, with a head's numbers side by side; you read it as d times H."
)
def interleaved(x, qkv_weight, qkv_bias, proj_weight, proj_bias, num_heads):
    heads, _ = heads_of(x, qkv_weight, qkv_bias, num_heads, split=split_interleaved)
    return join(heads) @ proj_weight.T + proj_bias


def in_order(parts, qkv_weight, qkv_bias):
    """Weight and bias with the rows of queries, keys and values (0, 1, 2) in another order."""
    return tuple(np.concatenate([np.split(x, 3)[part] for part in parts]) for x in (qkv_weight, qkv_bias))


@FORWARD.misreading("queries and keys exchanged", "The first D rows of qkv_weight make the queries, the next the keys.")
def queries_and_keys_exchanged(x, qkv_weight, qkv_bias, *others):
    return x, *in_order((1, 0, 2), qkv_weight, qkv_bias), *others


@FORWARD.misreading("queries and values exchanged", "The first D rows of qkv_weight make queries, the last values.")
def queries_and_values_exchanged(x, qkv_weight, qkv_bias, *others):
    return x, *in_order((2, 1, 0), qkv_weight, qkv_bias), *others


@FORWARD.misreading("qkv is read in the order (H, 3, d)", "It is (3, H, d) in memory: first all heads' queries.")
def heads_first(x, qkv_weight, qkv_bias, proj_weight, proj_bias, num_heads):
    order = np.arange(len(qkv_weight)).reshape(num_heads, 3, -1).transpose(1, 0, 2).ravel()
    return x, qkv_weight[order], qkv_bias[order], proj_weight, proj_bias, num_heads


@FORWARD.misreading("keys and values exchanged", "The second D rows of qkv_weight make the keys, the last the values.")
def keys_and_values_exchanged(x, qkv_weight, qkv_bias, *others):
    return x, *in_order((0, 2, 1), qkv_weight, qkv_bias), *others


@FORWARD.mistake(
    "the projection of the joined heads is forgotten", "The heads, side by side, go through proj_weight and proj_bias."
)
def without_projection(x, qkv_weight, qkv_bias, proj_weight, proj_bias, num_heads):
    return join(heads_of(x, qkv_weight, qkv_bias, num_heads)[0])


@FORWARD.misreading(
    "proj_weight is not transposed", "proj_weight is (out, in), as in every linear layer: y = x Wᵀ + b."
)
def projection_not_transposed(x, qkv_weight, qkv_bias, proj_weight, proj_bias, num_heads):
    return x, qkv_weight, qkv_bias, proj_weight.T, proj_bias, num_heads


@FORWARD.misreading("qkv_bias is forgotten", "Queries, keys and values have a bias.")
def without_qkv_bias(x, qkv_weight, qkv_bias, proj_weight, proj_bias, num_heads):
    return x, qkv_weight, 0 * qkv_bias, proj_weight, proj_bias, num_heads


@FORWARD.misreading("proj_bias is forgotten", "The projection has a bias.")
def without_proj_bias(x, qkv_weight, qkv_bias, proj_weight, proj_bias, num_heads):
    return x, qkv_weight, qkv_bias, proj_weight, 0 * proj_bias, num_heads
