"""The gradients of multi-head self-attention."""

import numpy as np

from tinyvit import functional as F
from tinyvit.exercises.exercise import Case, Exercise
from tinyvit.exercises.topics import multi_head_attention
from tinyvit.exercises.topics.attention import BY_HEADS, NO_MAXIMUM, SCALE
from tinyvit.exercises.topics.attention_backward import DIAGONAL, NOT_SCALED_BACK
from tinyvit.exercises.topics.multi_head_attention import BY_D, HEADS_FIRST, TRANSPOSE, WIDE
from tinyvit.nn.attention import Attention


def inputs(random, B, N, H, d):
    return with_dy(random, *multi_head_attention.inputs(random, B, N, H, d))


def large_scores(random):
    return with_dy(random, *multi_head_attention.large_scores(random))


def with_dy(random, x, qkv_weight, qkv_bias, proj_weight, proj_bias, num_heads):
    return random.standard_normal(x.shape), x, qkv_weight, qkv_bias, proj_weight, num_heads


def right(dy, x, qkv_weight, qkv_bias, proj_weight, num_heads):
    module = Attention(x.shape[-1], num_heads).materialize(dtype="float64")
    parameters = qkv_weight, qkv_bias, proj_weight, np.zeros(x.shape[-1])
    module.load_state_dict(dict(zip(("qkv.weight", "qkv.bias", "proj.weight", "proj.bias"), parameters)))
    module.zero_grad()
    dx = module.backward(dy, module(x)[1])
    return dx, module.qkv.weight.grad, module.qkv.bias.grad, module.proj.weight.grad, module.proj.bias.grad


BACKWARD = Exercise(
    "multi_head_attention_backward",
    "The gradients of `multi_head_attention`.",
    {"dy": "(B, N, D), the gradient of y", **multi_head_attention.ARGUMENTS, **multi_head_attention.HEADS},
    {"dx": "(B, N, D)", "dqkv_weight": "(3D, D)", "dqkv_bias": "(3D,)", "dproj_weight": "(D, D)", "dproj_bias": "(D,)"},
    right=right,
    shown=(Attention.forward, Attention.backward, F.attention_backward),
    inputs=inputs,
    sizes=multi_head_attention.SIZES,
    equal=multi_head_attention.EQUAL,
    # Rounding errors of scores near 1000 are multiplied by up to 2000.
    traps=(Case(multi_head_attention.LARGE, large_scores, tolerance=1e-8),),
)
EXERCISES = (BACKWARD,)

ORDER, DQKV = "dqkv has the order of qkv: queries, keys, values.", "(dq, dk, dv)"
ROWS = "The first D rows of qkv_weight make the queries, the next the keys, the last the values."
DHEADS, JOIN = "split_heads(dheads, num_heads)", f"np.concatenate([join_heads(part) for part in {DQKV}], -1)"
RESHAPED, JOINED_BY_RESHAPE = (DHEADS, "dheads.reshape(q.shape)"), ("join_heads(part)", "part.reshape(x.shape)")
JOINED_HEADS_FIRST = JOIN, f"np.stack({DQKV}, 3).swapaxes(1, 2).reshape(*x.shape[:2], -1)"


def scaled_by(factor):
    """Another factor in the place of 1/√d, in the attention and in its gradient."""
    return [(part, SCALE, factor) for part in ("attention", "attention_backward")]


BACKWARD.edit(*DIAGONAL)
BACKWARD.edit(*NOT_SCALED_BACK)
BACKWARD.edit("the scale 1/√d is forgotten", "The scores of each head are divided by √d.", *scaled_by("1"))
BACKWARD.edit(*BY_D, *scaled_by(WIDE))
BACKWARD.edit(*BY_HEADS, *scaled_by("q.shape[1] ** -0.5"))
BACKWARD.edit(*NO_MAXIMUM)
BACKWARD.edit("the joined heads' gradient is split by a reshape without transpose", f"{TRANSPOSE}.", RESHAPED)
BACKWARD.edit("the projection is forgotten on the way back", "Between y and the heads lies proj_weight.",
    (DHEADS, "split_heads(dy, num_heads)"))
BACKWARD.edit("wrong transpose of proj_weight", "The forward multiplies by proj_weightᵀ, the backward by proj_weight.",
    (DHEADS, "split_heads(dy @ proj_weight.T, num_heads)"))
BACKWARD.edit("dproj_weight is made of x", "The projection's input is the joined heads, not x.",
    ("linear_backward(dy, heads", "linear_backward(dy, x"))
BACKWARD.edit("the joined heads' gradient is joined by a reshape", "dq, dk and dv are (B, H, N, d): bring N before H "
    "by a transpose, then reshape to (B, N, D).", JOINED_BY_RESHAPE)
BACKWARD.edit("the heads are split and joined by reshapes on the way back", "(B, N, D) is (B, N, H, d) in memory: a "
    "transpose stands between that and (B, H, N, d), there and back.", RESHAPED, JOINED_BY_RESHAPE)
for what, read, put in (
    ("queries and values", "v, k, q", "(dv, dk, dq)"),
    ("queries and keys", "k, q, v", "(dk, dq, dv)"),
    ("keys and values", "q, v, k", "(dq, dv, dk)"),
):
    BACKWARD.edit(f"dq, dk and dv stand in another order in dqkv: {what} exchanged", ORDER, (DQKV, put))
    BACKWARD.edit(f"{what} exchanged", ROWS, (" q, k, v = (", f" {read} = ("), (DQKV, put))
BACKWARD.edit("qkv is read in the order (H, 3, d)", "It is (3, H, d) in memory: first all heads' queries.", HEADS_FIRST,
    JOINED_HEADS_FIRST)
BACKWARD.edit("dqkv is put together in the order (H, 3, d)", "qkv was (3, H, d): first all heads' queries, then their "
    "keys, then their values.", JOINED_HEADS_FIRST)
BACKWARD.edit("qkv_bias is forgotten where the forward is computed again", "q, k and v have a bias.",
    "qkv_bias = 0 * qkv_bias")
BACKWARD.edit("wrong transpose in dproj_weight", "Its rows are outputs, its columns inputs.",
    ("dqkv_bias, dproj_weight", "dqkv_bias, dproj_weight.T"))
BACKWARD.edit("dx comes from the queries only", "Queries, keys and values all depend on x: add up the three gradients.",
    ("return dx", "return join_heads(dq) @ np.split(qkv_weight, 3)[0]"))
BACKWARD.edit("the broadcast biases are not summed", "Each was added to every token of every sample: sum over both "
    "axes.", ("linear_backward", "dy_rows.sum(0)", "dy"))
BACKWARD.edit("the broadcast biases are summed over samples only", "Each was added to every token of every sample.",
    ("linear_backward", "dy_rows.sum(0)", "dy.sum(0)"))
