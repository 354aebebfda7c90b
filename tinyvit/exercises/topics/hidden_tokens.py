"""Tokens put back in their places, with a mask token in the gaps."""

import numpy as np

from tinyvit import functional as F
from tinyvit.exercises.exercise import Exercise


def index_of(random, B, N, n):
    return random.random((B, N)).argsort(1)[:, :n]


def inputs(random, B, N, n, D):
    x, token = random.standard_normal((B, n, D)), random.standard_normal((1, 1, D))
    return x, token, index_of(random, B, N, n), N


def backward_inputs(random, B, N, n, D):
    return random.standard_normal((B, N, D)), index_of(random, B, N, n)


SIZES = ({"B": 2, "N": 5, "n": 2, "D": 3}, {"B": 1, "N": 4, "n": 3, "D": 2})
FORWARD = Exercise(
    "place_tokens",
    "Each sample's tokens at the places `index` says, among `count` of them, and the mask token everywhere else.",
    {"x": "(B, n, D)", "token": "(1, 1, D), the mask token", "index": "(B, n), places from 0 to count − 1",
     "count": "N"},
    {"y": "(B, N, D)"},
    right=lambda x, token, index, count: F.place_tokens(x, token, index, count)[0],
    shown=(F.place_tokens, F.place_tokens_backward),
    inputs=inputs,
    sizes=SIZES,
)  # fmt: skip
BACKWARD = Exercise(
    "place_tokens_backward",
    "The gradients of tokens x (B, n, D) that were put at the places `index` says, and of the mask token, which is in "
    "all other places.",
    {"dy": "(B, N, D), the gradient of the result", "index": "(B, n)"},
    {"dx": "(B, n, D)", "dtoken": "(1, 1, D)"},
    right=lambda dy, index: F.place_tokens_backward(
        dy, F.place_tokens(dy[:, : index.shape[1]], dy[:1, :1], index, dy.shape[1])[1]
    ),
    shown=(F.place_tokens, F.place_tokens_backward),
    inputs=backward_inputs,
    sizes=SIZES,
)
EXERCISES = FORWARD, BACKWARD


@FORWARD.mistake("the first sample's places for all", "Each sample has places of its own: row b of `index`.")
def one_order(x, token, index, count):
    y = np.repeat(np.repeat(token, count, 1), len(x), 0)
    y[:, index[0]] = x
    return y


@FORWARD.mistake("mask tokens behind the others", "The tokens go to the places that `index` says, in any order.")
def appended(x, token, index, count):
    gaps = np.repeat(np.repeat(token, count - x.shape[1], 1), len(x), 0)
    return np.concatenate([x, gaps], 1)


@FORWARD.mistake("zeros in the gaps", "A place that no token goes to gets the mask token.")
def zeros(x, token, index, count):
    y = np.zeros((len(x), count, x.shape[2]))
    y[np.arange(len(x))[:, None], index] = x
    return y


@BACKWARD.mistake("dtoken is summed over all places", "The mask token is only where no other token is.")
def everywhere(dy, index):
    return {"dtoken": dy.sum((0, 1), keepdims=True)}


@BACKWARD.mistake("dtoken is a mean", "Every place that has the mask token adds its gradient: a sum.")
def mean(dy, index):
    others = dy.copy()
    others[np.arange(len(dy))[:, None], index] = 0
    return {"dtoken": others.sum((0, 1), keepdims=True) / (dy[..., 0].size - index.size)}


@BACKWARD.mistake("dx without the order", "The gradient of token i of a sample is at the place that index[b, i] says.")
def first_ones(dy, index):
    return {"dx": dy[:, : index.shape[1]]}


@BACKWARD.mistake("dtoken is summed over the wrong places", "The mask token is where no other token is.")
def of_the_others(dy, index):
    return {"dtoken": dy[np.arange(len(dy))[:, None], index].sum((0, 1), keepdims=True)}


@FORWARD.mistake("the mask token is added", "A token that is put in its place takes the mask token's.")
def added(x, token, index, count):
    y = np.repeat(np.repeat(token, count, 1), len(x), 0)
    y[np.arange(len(x))[:, None], index] += x
    return y
