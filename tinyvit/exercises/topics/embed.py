"""From patches to the tokens that the blocks read, and the gradients."""

from tinyvit import functional as F
from tinyvit.exercises.exercise import Exercise
from tinyvit.models.vit import Embed


def inputs(random, B, N, S, D):
    shapes = (B, N, S), (D, S), (D,), (1, 1, D), (1, N + 1, D)
    return tuple(random.standard_normal(shape) for shape in shapes)


def backward_inputs(random, B, N, S, D):
    patches, weight, *_ = inputs(random, B, N, S, D)
    return random.standard_normal((B, N + 1, D)), patches, weight


def embed(patches, weight, bias, cls_token, positions):
    tokens, _ = F.linear(patches, weight, bias)
    tokens, _ = F.prepend_token(tokens, cls_token)
    return F.add_positions(tokens, positions)[0]


def embed_backward(dy, patches, weight):
    tokens, c_linear = F.linear(patches, weight, weight[:, 0])
    tokens, c_token = F.prepend_token(tokens, dy[:1, :1])
    _, c_positions = F.add_positions(tokens, dy[:1])
    dtokens, dpositions = F.add_positions_backward(dy, c_positions)
    dtokens, dcls_token = F.prepend_token_backward(dtokens, c_token)
    return *F.linear_backward(dtokens, c_linear), dcls_token, dpositions


SIZES = {"B": 2, "N": 3, "S": 5, "D": 4}, {"B": 1, "N": 2, "S": 4, "D": 7}
EQUAL = {"B": 3, "N": 3, "S": 3, "D": 3}
FORWARD = Exercise(
    "embed",
    "Project patches to tokens, put the class token in front, add the positions (Dosovitskiy et al. 2021, eq. 1).",
    {
        "patches": "(B, N, S), where S = C·P·Q",
        "weight": "(D, S)",
        "bias": "(D,)",
        "cls_token": "(1, 1, D)",
        "positions": "(1, N+1, D)",
    },
    {"tokens": "(B, N+1, D)"},
    right=embed,
    shown=(Embed,),
    inputs=inputs,
    sizes=SIZES,
    equal=EQUAL,
)
BACKWARD = Exercise(
    "embed_backward",
    "The gradients of `embed`.",
    {"dy": "(B, N+1, D), the gradient of the tokens", "patches": "(B, N, S), where S = C·P·Q", "weight": "(D, S)"},
    {
        "dpatches": "(B, N, S), where S = C·P·Q",
        "dweight": "(D, S)",
        "dbias": "(D,)",
        "dcls_token": "(1, 1, D)",
        "dpositions": "(1, N+1, D)",
    },
    right=embed_backward,
    shown=(Embed, F.prepend_token_backward, F.add_positions_backward, F.linear_backward),
    inputs=backward_inputs,
    sizes=SIZES,
    equal=EQUAL,
)
EXERCISES = FORWARD, BACKWARD

FIRST = "dy[:, :1].sum(0, keepdims=True)"

FORWARD.edit("weight is not transposed", "weight is (D, S): each output is the product of a patch with a row of "
    "weight.", "weight = weight.T")
FORWARD.edit("the class token stands last", "It is put in front of the patches.",
    ("[first, tokens]", "[tokens, first]"))
FORWARD.edit("the class token gets no position", "The first position is its own; add the positions after putting the "
    "token in front.", ("tokens], 1) + positions", "tokens + positions[:, 1:]], 1)"))
FORWARD.edit("positions are forgotten", "Without them the blocks could not know where a patch is.",
    (" + positions", ""))
FORWARD.edit("bias is forgotten", "The projection has a bias.", "bias = 0 * bias")
FORWARD.edit("the projection's bias is added to the class token", "The class token isn't projected, and gets no bias.",
    ("weight, bias)", "weight, 0)"), (" + positions", " + bias + positions"))

BACKWARD.edit("the broadcast positions are not summed", "Every sample got the same positions: their gradients add up "
    "over the batch.", (", dy.sum(0, keepdims=True)", ", dy"))
BACKWARD.edit("the broadcast class token is not summed", "Every sample got the same class token: its gradients add up "
    "over the batch.", (FIRST, "dy[:, :1]"))
BACKWARD.edit("the class token's gradient is summed over all tokens", "Only the first token of a sample is the class "
    "token.", (FIRST, "dy.sum((0, 1), keepdims=True)"))
BACKWARD.edit("the class token counts in the bias's gradient", "It wasn't projected: sum over the patches only.",
    ("return dpatches, dweight, dbias", "return dpatches, dweight, dy.sum((0, 1))"))
BACKWARD.edit("the broadcast bias is not summed", "The bias was added to every patch, and gets a gradient from every "
    "patch.", ("linear_backward", "dy_rows.sum(0)", "dy"))
BACKWARD.edit("means in place of sums over the batch", "A parameter shared by all samples gets the sum of their "
    "gradients.", ("sum(0", "mean(0"), ("linear_backward", "dy_rows.sum(0)", "dy_rows.mean(0)"))
BACKWARD.edit("the last token is taken for the class token", "The class token comes first.",
    ("dy[:, 1:]", "dy[:, :-1]"), ("dy[:, :1]", "dy[:, -1:]"))
BACKWARD.edit("wrong transpose in dweight", "The gradient of weight has weight's shape, (D, S).",
    ("linear_backward", "dy_rows.T @ x_rows", "x_rows.T @ dy_rows"))
BACKWARD.edit("wrong transpose in dpatches", "The forward multiplies by weightᵀ, the backward by weight.",
    ("linear_backward", "dy @ weight", "dy @ weight.T"))
