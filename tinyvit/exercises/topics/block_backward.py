"""The gradients of the pre-norm residual block."""

from tinyvit.exercises.exercise import Case, Exercise
from tinyvit.exercises.topics import block, multi_head_attention
from tinyvit.exercises.topics.attention import NO_MAXIMUM
from tinyvit.exercises.topics.block import module
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
)
EXERCISES = (BACKWARD,)

ATTENTIONS = "multi_head_attention_backward(dx1, a"
NORM1 = 'da, g["norm1.weight"], g["norm1.bias"]'
NORM2 = 'dm, g["norm2.weight"], g["norm2.bias"]'
SKIPPED1, SKIPPED2 = (NORM1, NORM1.replace("da", "_")), (NORM2, NORM2.replace("dm", "_"))
TERMS = "layernorm_backward", " - mean_g - xhat * mean_gxhat", ""

BACKWARD.edit("the gradients of both residuals are forgotten", "A sum sends its gradient both ways: into the branch "
    "and past it.", ("dx1 = dy + dm", "dx1 = dm"), ("dx1 + da", "da"))
BACKWARD.edit("the first residual's gradient is forgotten", "The gradient of x + attention also goes past the "
    "attention, to x.", ("dx1 + da", "da"))
BACKWARD.edit("the second residual's gradient is forgotten", "The gradient of the last sum also goes past the MLP.",
    ("dx1 = dy + dm", "dx1 = dm"))
BACKWARD.edit("only the residual's gradient", "dy goes past both branches, and through them as well.",
    ("dx1 + da", "dy"), outputs=("dx",))
BACKWARD.edit("the attention gets dy", "It gets the gradient of the sum after it: dy plus the gradient through the "
    "MLP.", (ATTENTIONS, ATTENTIONS.replace("dx1", "dy")))
BACKWARD.edit("the attention gets only what came through the MLP", "It gets the gradient of the sum after it: dy, "
    "which went past the MLP, plus the gradient through the MLP.", (ATTENTIONS, ATTENTIONS.replace("dx1", "dm")))
BACKWARD.edit("dy goes past the attention, not the sum's gradient", "Past the attention goes the gradient of the sum "
    "after it: dy plus the gradient through the MLP.", ("dx1 + da", "dy + da"))
BACKWARD.edit("x in place of norm1(x) in the attention's backward", "The attention's input was norm1(x): its backward "
    "is taken there.", (ATTENTIONS, "multi_head_attention_backward(dx1, x"))
BACKWARD.edit("x in place of norm1(x) in attn.qkv.weight's gradient", "The input of the linear layer qkv was norm1(x), "
    "not x.", "global entered; entered = x", ("multi_head_attention_backward", "(dqkv, x,", "(dqkv, entered,"))
BACKWARD.edit("the sum in place of norm2(sum) in mlp.fc1.weight's gradient", "The input of the linear layer fc1 was "
    "norm2 of the sum.", ("m = layer", "global entered; entered = x1; m = layer"),
    ("mlp_backward", "dh, x,", "dh, entered,"))
BACKWARD.edit("the sum in place of norm2(sum) in the MLP's backward", "The MLP's input was norm2 of the sum: its "
    "backward is taken there.", ("mlp_backward(dy, m", "mlp_backward(dy, x1"))
BACKWARD.edit("norm1's gradient is taken at its output", "A layer norm's backward needs what went into it: x.",
    ("layernorm_backward(da, x", "layernorm_backward(da, a"))
BACKWARD.edit("norm2's gradient is taken at its output", "A layer norm's backward needs what went into it: the sum of "
    "x and the attention.", ("layernorm_backward(dm, x1", "layernorm_backward(dm, m"))
BACKWARD.edit("norm1 is skipped on the way back", "Between the attention and x lies norm1: take its backward.",
    SKIPPED1)
BACKWARD.edit("norm2 is skipped on the way back", "Between the MLP and the sum lies norm2: take its backward.",
    SKIPPED2)
BACKWARD.edit("both norms are skipped on the way back", "Each branch starts with a layer norm.", SKIPPED1, SKIPPED2)
BACKWARD.edit("norm2's gradient is taken at x", "The input of norm2 is the sum of x and the attention.",
    ("layernorm_backward(dm, x1", "layernorm_backward(dm, x"))
BACKWARD.edit("the softmax's Jacobian is taken as diagonal", "Each score changes all probabilities of its query: the "
    "Jacobian is a full matrix.",
    ("softmax_backward", "(dy - (dy * probs).sum(-1, keepdims=True))", "dy * (1 - probs)"))
BACKWARD.edit("the scale 1/√d is forgotten on the way back", "The scores were scaled: their gradient is scaled, too.",
    ("attention_backward", "scores) * scale", "scores)"))
BACKWARD.edit(*NO_MAXIMUM)
BACKWARD.edit("the 1/N terms of the layer norms are missing", "Mean and standard deviation depend on the whole row; "
    "see layernorm_backward.", TERMS)
BACKWARD.edit("wrong transpose of fc1's weight", "The forward multiplies by the transpose of fc1's weight, the "
    "backward by the weight itself.", ("mlp_backward", "dh, x, weight1", "dh, x, weight1.T"))
BACKWARD.edit("ε is forgotten", "Both layer norms added it to the variance.", "eps = 0")
BACKWARD.edit("the broadcast biases are not summed", "Each was added to every token of every sample: sum over both "
    "axes.", ("linear_backward", ", dy_rows.sum(0)", ", dy"))
