"""The gradients of the pre-norm residual block."""

from functools import partial

import numpy as np

from tinyvit import functional as F
from tinyvit.exercises.exercise import Case, Exercise
from tinyvit.exercises.topics import block, multi_head_attention, multi_head_attention_backward
from tinyvit.exercises.topics import mlp as mlp_topic
from tinyvit.exercises.topics.attention import NO_MAXIMUM
from tinyvit.exercises.topics.block import ATTENTION, MLP, attend, module, norm
from tinyvit.nn.block import Block


def inputs(random, B, N, H, d, M):
    arguments = block.inputs(random, B, N, H, d, M)
    return random.standard_normal(arguments[0].shape), *arguments


def large_scores(random):
    arguments = block.large_scores(random)
    return random.standard_normal(arguments[0].shape), *arguments


def right(dy, x, parameters, num_heads, eps):
    made = module(x, parameters, num_heads, eps)
    made.zero_grad()
    dx = made.backward(dy, made(x)[1])
    return dx, {name: parameter.grad for name, parameter in made.named_parameters()}


# -- the steps, and other ways to take them -------------------------------------------------------------------------


def attend_backward(dy, x, parameters, num_heads, **switches):
    weights = (parameters[name] for name in ATTENTION[:3])
    dx, *gradients = multi_head_attention_backward.backward(dy, x, *weights, num_heads, **switches)
    return dx, dict(zip(ATTENTION, gradients))


def think_backward(dy, x, parameters):
    dx, *gradients = mlp_topic.backward(dy, x, *(parameters[name] for name in MLP[:3]))
    return dx, dict(zip(MLP, gradients))


def fc1_transposed(dy, x, parameters):
    """The MLP's backward, in which the gradient meets fc1's weight as the input did."""
    _, gradients = think_backward(dy, x, parameters)
    return mlp_topic.weight1_transposed(dy, x, *(parameters[name] for name in MLP[:3]))["dx"], gradients


def norm_backward(dy, x, parameters, name, eps):
    _, cache = F.layernorm(x, parameters[f"{name}.weight"], parameters[f"{name}.bias"], eps)
    dx, dweight, dbias = F.layernorm_backward(dy, cache)
    return dx, {f"{name}.weight": dweight, f"{name}.bias": dbias}


def without_mean_terms(dy, x, parameters, name, eps):
    """A layer norm's backward that forgets what goes through mean and variance."""
    _, cache = F.layernorm(x, parameters[f"{name}.weight"], parameters[f"{name}.bias"], eps)
    _, gradients = norm_backward(dy, x, parameters, name, eps)
    return cache.rstd * dy * cache.weight, gradients


def skipped(dy, x, parameters, name, eps):
    """A layer norm's backward that lets the gradient through as it is; those of weight and bias are right."""
    return dy, norm_backward(dy, x, parameters, name, eps)[1]


def written(
    dy, x, p, num_heads, eps, residual2=1, norm1_at="x", norm2_at="sum", attention=attend_backward,
    norm1=norm_backward, norm2=norm_backward, mlp=think_backward, attention_gets="all", past_attention="all",
    attention_at="norm", mlp_at="norm",
):  # fmt: skip
    """dx and the gradients, with a switch for each step.

    residual2                       0 leaves out what goes past the MLP
    attention_gets, past_attention  of what came back to the sum behind it
    norm1_at, norm2_at, attention_at, mlp_at   the input at which a backward is taken, or its weight's gradient
    """
    normed = norm(x, p, "norm1", eps)
    total = x + attend(normed, p, num_heads)
    normed2 = norm(total, p, "norm2", eps)
    dm, gradients = mlp(dy, total if mlp_at == "sum" else normed2, p)
    dm, of_norm2 = norm2(dm, {"sum": total, "x": x, "norm": normed2}[norm2_at], p, "norm2", eps)
    dtotal = residual2 * dy + dm
    comes_back = {"all": dtotal, "dy": dy, "branch": dm, "nothing": 0 * dy}
    to_attention, past = comes_back[attention_gets], comes_back[past_attention]
    da, of_attention = attention(to_attention, x if attention_at == "x" else normed, p, num_heads)
    if attention_at == "x for the weight":
        of_attention |= {ATTENTION[0]: attend_backward(to_attention, normed, p, num_heads, qkv_of=x)[1][ATTENTION[0]]}
    if mlp_at == "sum for the weight":
        dh = mlp_topic.dh_of(dy, normed2, *(p[name] for name in MLP[:3]))
        gradients |= {MLP[0]: multi_head_attention_backward.of_tokens(dh, total)}
    da, of_norm1 = norm1(da, {"x": x, "norm": normed}[norm1_at], p, "norm1", eps)
    return past + da, {**gradients, **of_norm2, **of_attention, **of_norm1}


BACKWARD = Exercise(
    "block_backward",
    "The gradients of `block`: of x, and of all parameters by their names.",
    {"dy": "(B, N, D), the gradient of y", **block.ARGUMENTS},
    {"dx": "(B, N, D)", "gradients": "a dict: the gradient of each parameter, by its name"},
    right=right,
    shown=(Block.forward, Block.backward),
    inputs=inputs,
    sizes=block.SIZES,
    equal=block.EQUAL,
    traps=(Case(multi_head_attention.LARGE, large_scores, tolerance=1e-8),),  # as of the attention
    written=written,
)
EXERCISES = (BACKWARD,)

BACKWARD.variant(
    "the gradients of both residuals are forgotten",
    "A sum sends its gradient both ways: into the branch and past it.",
    past_attention="nothing",
    residual2=0,
)
BACKWARD.variant(
    "the first residual's gradient is forgotten",
    "The gradient of x + attention also goes past the attention, to x.",
    past_attention="nothing",
)
BACKWARD.variant(
    "the second residual's gradient is forgotten",
    "The gradient of the last sum also goes past the MLP.",
    residual2=0,
)


@BACKWARD.mistake("only the residual's gradient", "dy goes past both branches, and through them as well.")
def residuals_only(dy, *arguments):
    return {"dx": dy}


BACKWARD.variant(
    "the attention gets dy",
    "It gets the gradient of the sum after it: dy plus the gradient through the MLP.",
    attention_gets="dy",
)


@BACKWARD.mistake(
    "the attention gets only what came through the MLP",
    "It gets the gradient of the sum after it: dy, which went past the MLP, plus the gradient through the MLP.",
)
def attention_gets_the_branch(*arguments):
    return written(*arguments, attention_gets="branch")


BACKWARD.variant(
    "dy goes past the attention, not the sum's gradient",
    "Past the attention goes the gradient of the sum after it: dy plus the gradient through the MLP.",
    past_attention="dy",
)
BACKWARD.variant(
    "x in place of norm1(x) in the attention's backward",
    "The attention's input was norm1(x): its backward is taken there.",
    attention_at="x",
)


BACKWARD.variant(
    "x in place of norm1(x) in attn.qkv.weight's gradient",
    "The input of the linear layer qkv was norm1(x), not x.",
    attention_at="x for the weight",
)
BACKWARD.variant(
    "the sum in place of norm2(sum) in mlp.fc1.weight's gradient",
    "The input of the linear layer fc1 was norm2 of the sum.",
    mlp_at="sum for the weight",
)
BACKWARD.variant(
    "the sum in place of norm2(sum) in the MLP's backward",
    "The MLP's input was norm2 of the sum: its backward is taken there.",
    mlp_at="sum",
)
BACKWARD.variant(
    "norm1's gradient is taken at its output", "A layer norm's backward needs what went into it: x.", norm1_at="norm"
)
BACKWARD.variant(
    "norm2's gradient is taken at its output",
    "A layer norm's backward needs what went into it: the sum of x and the attention.",
    norm2_at="norm",
)
BACKWARD.variant(
    "norm1 is skipped on the way back", "Between the attention and x lies norm1: take its backward.", norm1=skipped
)
BACKWARD.variant(
    "norm2 is skipped on the way back", "Between the MLP and the sum lies norm2: take its backward.", norm2=skipped
)
BACKWARD.variant(
    "both norms are skipped on the way back", "Each branch starts with a layer norm.", norm1=skipped, norm2=skipped
)
BACKWARD.variant(
    "norm2's gradient is taken at x", "The input of norm2 is the sum of x and the attention.", norm2_at="x"
)
BACKWARD.variant(
    "the softmax's Jacobian is taken as diagonal",
    "Each score changes all probabilities of its query: the Jacobian is a full matrix.",
    attention=partial(attend_backward, attention_backward=multi_head_attention_backward.diagonal_softmax),
)
BACKWARD.variant(
    "the scale 1/√d is forgotten on the way back",
    "The scores were scaled: their gradient is scaled, too.",
    attention=partial(attend_backward, back="unscaled"),
)
BACKWARD.variant(
    *NO_MAXIMUM,
    attention=partial(attend_backward, attention_backward=multi_head_attention_backward.careless_backward),
)
BACKWARD.variant(
    "the 1/N terms of the layer norms are missing",
    "Mean and standard deviation depend on the whole row; see layernorm_backward.",
    norm1=without_mean_terms,
    norm2=without_mean_terms,
)
BACKWARD.variant(
    "the 1/N terms of norm1 are missing", "Those of norm2 are there; see layernorm_backward.", norm1=without_mean_terms
)
BACKWARD.variant(
    "the 1/N terms of norm2 are missing", "Those of norm1 are there; see layernorm_backward.", norm2=without_mean_terms
)
BACKWARD.variant(
    "wrong transpose of fc1's weight",
    "The forward multiplies by the transpose of fc1's weight, the backward by the weight itself.",
    mlp=fc1_transposed,
)


@BACKWARD.misreading("ε is forgotten", "Both layer norms added it to the variance.")
def without_eps(dy, x, p, num_heads, eps):
    return dy, x, p, num_heads, 0.0


@BACKWARD.mistake(
    "the broadcast biases are not summed", "Each was added to every token of every sample: sum over both axes."
)
def mlp_bias_not_summed(dy, *arguments):
    return {"gradients": {"mlp.fc2.bias": np.array(dy)}}
