"""From patches to the tokens that the blocks read, and the gradients."""

import numpy as np

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


def with_class_token(tokens, cls_token):
    return np.concatenate([np.repeat(cls_token, len(tokens), 0), tokens], 1)


@FORWARD.mistake(
    "weight is not transposed", "weight is (D, S): each output is the product of a patch with a row of weight."
)
def not_transposed(patches, weight, bias, cls_token, positions):
    return with_class_token(patches @ weight + bias, cls_token) + positions


@FORWARD.mistake("the class token stands last", "It is put in front of the patches.")
def class_token_last(patches, weight, bias, cls_token, positions):
    tokens = patches @ weight.T + bias
    return np.concatenate([tokens, np.repeat(cls_token, len(tokens), 0)], 1) + positions


@FORWARD.mistake(
    "the class token gets no position",
    "The first position is its own; add the positions after putting the token in front.",
)
def class_token_without_position(patches, weight, bias, cls_token, positions):
    return with_class_token(patches @ weight.T + bias + positions[:, 1:], cls_token)


@FORWARD.misreading("positions are forgotten", "Without them the blocks could not know where a patch is.")
def without_positions(patches, weight, bias, cls_token, positions):
    return patches, weight, bias, cls_token, 0 * positions


@FORWARD.misreading("bias is forgotten", "The projection has a bias.")
def without_bias(patches, weight, bias, cls_token, positions):
    return patches, weight, 0 * bias, cls_token, positions


@FORWARD.mistake(
    "the projection's bias is added to the class token", "The class token isn't projected, and gets no bias."
)
def bias_on_the_class_token(patches, weight, bias, cls_token, positions):
    return with_class_token(patches @ weight.T, cls_token) + bias + positions


@BACKWARD.mistake(
    "the broadcast positions are not summed",
    "Every sample got the same positions: their gradients add up over the batch.",
)
def positions_not_summed(dy, patches, weight):
    return {"dpositions": dy}


@BACKWARD.mistake(
    "the broadcast class token is not summed",
    "Every sample got the same class token: its gradients add up over the batch.",
)
def class_token_not_summed(dy, patches, weight):
    return {"dcls_token": dy[:, :1]}


@BACKWARD.mistake(
    "the class token's gradient is summed over all tokens", "Only the first token of a sample is the class token."
)
def class_token_of_all_tokens(dy, patches, weight):
    return {"dcls_token": dy.sum((0, 1), keepdims=True)}


@BACKWARD.mistake("the class token counts in the bias's gradient", "It wasn't projected: sum over the patches only.")
def bias_of_all_tokens(dy, patches, weight):
    return {"dbias": dy.sum((0, 1))}


@BACKWARD.mistake(
    "the broadcast bias is not summed", "The bias was added to every patch, and gets a gradient from every patch."
)
def bias_not_summed(dy, patches, weight):
    return {"dbias": dy[:, 1:]}


@BACKWARD.mistake(
    "means in place of sums over the batch", "A parameter shared by all samples gets the sum of their gradients."
)
def means(dy, patches, weight):
    dcls_token, dpositions = dy[:, :1].mean(0, keepdims=True), dy.mean(0, keepdims=True)
    return {"dcls_token": dcls_token, "dpositions": dpositions, "dbias": dy[:, 1:].mean((0, 1))}


@BACKWARD.mistake("the last token is taken for the class token", "The class token comes first.")
def class_token_taken_last(dy, patches, weight):
    dtokens = dy[:, :-1]
    dcls_token = dy[:, -1:].sum(0, keepdims=True)
    dweight = np.einsum("bnd,bni->di", dtokens, patches)
    return {"dpatches": dtokens @ weight, "dweight": dweight, "dbias": dtokens.sum((0, 1)), "dcls_token": dcls_token}


@BACKWARD.mistake("wrong transpose in dweight", "The gradient of weight has weight's shape, (D, S).")
def dweight_transposed(dy, patches, weight):
    return {"dweight": np.einsum("bnd,bni->id", dy[:, 1:], patches)}


@BACKWARD.mistake("wrong transpose in dpatches", "The forward multiplies by weightᵀ, the backward by weight.")
def dpatches_transposed(dy, patches, weight):
    return {"dpatches": dy[:, 1:] @ weight.T}
