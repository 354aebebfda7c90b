"""Multi-head self-attention."""

import numpy as np

from tinyvit import functional as F
from tinyvit.exercises.exercise import Case, Exercise
from tinyvit.exercises.topics.attention import BY_HEADS, NO_MAXIMUM, SCALE
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


# -- ways to split and join heads ---------------------------------------------------------------------------------

SPLIT = "N, num_heads, D // num_heads).transpose(0, 2, 1, 3)"
BY_RESHAPE = "split_heads", SPLIT, "num_heads, N, D // num_heads)"
INTERLEAVED = "split_heads", SPLIT, "N, D // num_heads, num_heads).transpose(0, 3, 1, 2)"
JOINED_BY_RESHAPE = "join_heads", ".transpose(0, 2, 1, 3)", ""


def right(x, qkv_weight, qkv_bias, proj_weight, proj_bias, num_heads):
    qkv, _ = F.split_heads(F.linear(x, qkv_weight, qkv_bias)[0], num_heads)
    heads, _ = F.merge_heads(F.attention(*qkv)[0])
    return F.linear(heads, proj_weight, proj_bias)[0]


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
    right=right,
    shown=(Attention.forward,),
    inputs=inputs,
    sizes=SIZES,
    equal=EQUAL,
    traps=(Case(LARGE, large_scores),),
)
EXERCISES = (FORWARD,)

BY_D = "the scale is 1/√(H·d) in place of 1/√d", "A score is a sum over one head's d numbers, not over all D = H·d."
WIDE = "(q.shape[1] * q.shape[-1]) ** -0.5"
THIRDS = "np.split(qkv, 3, -1)"
HEADS_FIRST = THIRDS, "np.moveaxis(qkv.reshape(*x.shape[:2], num_heads, 3, -1), 3, 0).reshape(3, *x.shape)"
TRANSPOSE = "(B, N, D) is (B, N, H, d) in memory: reshape to that, then bring H before N by a transpose"

FORWARD.edit("the scale 1/√d is forgotten", "The scores of each head are divided by √d.", ("attention", SCALE, "1"))
FORWARD.edit(*BY_D, ("attention", SCALE, WIDE))
FORWARD.edit(*BY_HEADS, ("attention", SCALE, "q.shape[1] ** -0.5"))
FORWARD.edit("scaled by 1/d", "Divide the scores by the square root of d.", ("attention", SCALE, "q.shape[-1] ** -1.0"))
FORWARD.edit(*NO_MAXIMUM)
FORWARD.edit("one head", "Each head has its own softmax, over the scores of its own d numbers.", "num_heads = 1")
FORWARD.edit("heads are split by a reshape without transpose", f"{TRANSPOSE}.", BY_RESHAPE)
FORWARD.edit("heads are split and joined by a reshape without transpose", f"{TRANSPOSE}; and back by another.",
    BY_RESHAPE, JOINED_BY_RESHAPE)
FORWARD.edit("heads are joined by a reshape without transpose", "(B, H, N, d) has to become (B, N, H, d) by a "
    "transpose first.", JOINED_BY_RESHAPE)
FORWARD.edit("heads are interleaved", "D is H times d, with a head's numbers side by side; you read it as d times H.",
    INTERLEAVED)
FORWARD.edit("queries and keys exchanged", "The first D rows of qkv_weight make the queries, the next the keys.",
    ("q, k, v =", "k, q, v ="))
FORWARD.edit("queries and values exchanged", "The first D rows of qkv_weight make queries, the last values.",
    ("q, k, v =", "v, k, q ="))
FORWARD.edit("qkv is read in the order (H, 3, d)", "It is (3, H, d) in memory: first all heads' queries.", HEADS_FIRST)
FORWARD.edit("keys and values exchanged", "The second D rows of qkv_weight make the keys, the last the values.",
    ("q, k, v =", "q, v, k ="))
FORWARD.edit("the projection of the joined heads is forgotten", "The heads, side by side, go through proj_weight and "
    "proj_bias.", ("linear(heads, proj_weight, proj_bias)", "heads"))
FORWARD.edit("proj_weight is not transposed", "proj_weight is (out, in), as in every linear layer: y = x Wᵀ + b.",
    "proj_weight = proj_weight.T")
FORWARD.edit("qkv_bias is forgotten", "Queries, keys and values have a bias.", "qkv_bias = 0 * qkv_bias")
FORWARD.edit("proj_bias is forgotten", "The projection has a bias.", "proj_bias = 0 * proj_bias")
