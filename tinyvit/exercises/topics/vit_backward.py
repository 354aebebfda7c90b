"""The gradients of the whole Vision Transformer."""

from tinyvit.exercises.exercise import Case, Exercise
from tinyvit.exercises.topics import vit
from tinyvit.models.vit import ViT


def inputs(random, **sizes):
    arguments = vit.inputs(random, **sizes)
    return random.standard_normal((sizes["B"], sizes["K"])), *arguments


def as_trained(random):
    arguments = vit.as_trained(random)
    return random.standard_normal((len(arguments[0]), 10)), *arguments


def right(dy, images, parameters, depth, num_heads, eps):
    model = vit.module(images, parameters, depth, num_heads, eps)
    model.zero_grad()
    dimages = model.backward(dy, model(images)[1])
    return dimages, {name: parameter.grad for name, parameter in model.named_parameters()}


BACKWARD = Exercise(
    "vit_backward",
    "The gradients of `vit`: of the images, and of all parameters by their names.",
    {"dy": "(B, K), the gradient of the logits", **vit.ARGUMENTS},
    {"dimages": "(B, C, H, W)", "gradients": "a dict: the gradient of each parameter, by its name"},
    right=right,
    shown=(ViT.forward, ViT.backward),
    inputs=inputs,
    sizes=vit.SIZES,
    equal=vit.EQUAL,
    traps=(Case(vit.DIGITS, as_trained),),
)
EXERCISES = (BACKWARD,)

FIRST = "dy[:, :1].sum(0, keepdims=True)"

BACKWARD.edit("the head's gradient goes to all tokens", "Only the class token was read: all others get zeros.",
    ('dx, g["norm.weight"]', 'dnormed[:] = dnormed[:, :1]; dx, g["norm.weight"]'))
BACKWARD.edit("the head's gradient goes to the last token", "The class token comes first.",
    ("dnormed[:, 0]", "dnormed[:, -1]"))
BACKWARD.edit("the last norm is forgotten on the way back", "Between the head and the blocks lies a layer norm.",
    ("    for i in reversed", "    dx = dnormed\n    for i in reversed"))
BACKWARD.edit("the blocks' backwards run in the order of the forward", "The backward is the forward read from the "
    "bottom up: the last block comes first.", ("reversed(range(depth))", "range(depth)"))
BACKWARD.edit("the blocks' backwards are taken at their outputs", "A block's backward needs what went into the block: "
    "keep x before each.", ("inputs[i]", "[*inputs, x][i + 1]"))
BACKWARD.edit("all blocks' backwards are taken at the first one's input", "A block's backward needs what went into "
    "that block: keep x before each.", ("inputs[i]", "inputs[0]"))
BACKWARD.edit("the last token is taken for the class token", "The class token comes first: the gradients of the "
    "patches are those from the second token on.", ("embed_backward", "dy[:, 1:]", "dy[:, :-1]"))
BACKWARD.edit("the broadcast positions are not summed", "Every image got the same positions: their gradients add up "
    "over the batch.", ("embed_backward", ", dy.sum(0, keepdims=True)", ", dy"))
BACKWARD.edit("the broadcast class token is not summed", "Every image got the same class token: its gradients add up "
    "over the batch.", ("embed_backward", FIRST, "dy[:, :1]"))
BACKWARD.edit("means in place of sums over the batch", "A parameter that all images share gets the sum.",
    ("embed_backward", "sum(0", "mean(0"))
BACKWARD.edit("the class token's gradient is summed over all tokens", "Only the first token of an image is the class "
    "token.", ("embed_backward", FIRST, "dy.sum((0, 1), keepdims=True)"))
BACKWARD.edit("the class token counts in the patch embedding's bias", "It wasn't projected: sum over the patches only.",
    ("embed_backward", "return dpatches, dweight, dbias", "return dpatches, dweight, dy.sum((0, 1))"))
BACKWARD.edit("ε is forgotten", "All layer norms added it to the variance.", "eps = 0")
