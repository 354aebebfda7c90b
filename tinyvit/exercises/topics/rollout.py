"""Attention rollout."""

import numpy as np

from tinyvit.exercises.exercise import Exercise
from tinyvit.functional import softmax


def inputs(random, L, B, H, N):
    return (softmax(random.standard_normal((L, B, H, N, N)))[0],)


def rollout(attention):
    eye = np.eye(attention.shape[-1])
    rolled = eye
    for layer in attention.mean(2):                                          # (B, N, N), the first layer first
        rolled = (0.5 * layer + 0.5 * eye) @ rolled
    return rolled


ROLLOUT = Exercise(
    "rollout",
    "Attention rollout (Abnar & Zuidema 2020): the product of all layers' ½ (mean over the heads) + ½ I, the last one "
    "on the left.",
    {"attention": "(L, B, H, N, N): L layers, each row adding up to 1"},
    {"R": "(B, N, N)"},
    right=rollout,
    shown=(rollout,),
    inputs=inputs,
    sizes=({"L": 3, "B": 2, "H": 4, "N": 5}, {"L": 4, "B": 1, "H": 2, "N": 6}),
)
EXERCISES = (ROLLOUT,)


def product(layers):
    """Of matrices (B, N, N), the last on the left."""
    rolled = layers[0]
    for layer in layers[1:]:
        rolled = layer @ rolled
    return rolled


def half(attention):
    return 0.5 * attention + 0.5 * np.eye(attention.shape[-1])


@ROLLOUT.mistake("the identity alone", "Nothing has flowed yet: multiply by each layer.")
def nothing_flows(attention):
    return np.tile(np.eye(attention.shape[-1]), (attention.shape[1], 1, 1))


@ROLLOUT.misreading(
    "the product in the wrong order", "The first layer acts on the tokens first: it stands on the right."
)
def wrong_order(attention):
    return (attention[::-1],)


@ROLLOUT.misreading("the last layer is left out", "All layers have mixed the tokens; does the loop end one too early?")
def without_the_last(attention):
    return (attention[:-1],)


@ROLLOUT.misreading("the first layer is left out", "All layers have mixed the tokens, the first as well.")
def without_the_first(attention):
    return (attention[1:],)


@ROLLOUT.misreading("only the last layer", "It mixes the results of the layers before it: take the product of all.")
def the_last_alone(attention):
    return (attention[-1:],)


@ROLLOUT.misreading("attention is transposed", "A row is a token that attends, a column one that is attended to.")
def transposed(attention):
    return (attention.mT,)


@ROLLOUT.mistake("the residual connection is forgotten", "In every layer half of each token stays the same: + ½ I.")
def without_residual(attention):
    return product(attention.mean(2))


@ROLLOUT.mistake("the identity is added, and nothing is halved", "The rows don't add up to 1 any more.")
def not_halved(attention):
    return product(attention.mean(2) + np.eye(attention.shape[-1]))


@ROLLOUT.mistake("only the attention is halved", "The identity is halved as well, so that rows add up to 1.")
def identity_not_halved(attention):
    return product(0.5 * attention.mean(2) + np.eye(attention.shape[-1]))


@ROLLOUT.mistake("the sum over the heads", "The heads are averaged, so that rows still add up to 1.")
def sum_of_heads(attention):
    return product(half(attention.sum(2)))


@ROLLOUT.mistake("the largest of the heads", "The paper takes their mean.")
def largest_head(attention):
    return product(half(attention.max(2)))


@ROLLOUT.mistake("the first head alone", "Take the mean over all heads.")
def first_head(attention):
    return product(half(attention[:, :, 0]))


@ROLLOUT.mistake(
    "each head is rolled out, and then the mean taken",
    "The heads of a layer write to the same tokens: average them in each layer.",
)
def head_by_head(attention):
    return product(half(attention)).mean(1)


@ROLLOUT.mistake(
    "the layers are averaged, not multiplied", "Each layer mixes the result of the one before it: multiply them."
)
def mean_of_layers(attention):
    return half(attention.mean((0, 2)))


@ROLLOUT.mistake("an elementwise product", "* multiplies entry by entry; use the matrix product @.")
def elementwise(attention):
    return half(attention.mean(2)).prod(0)


@ROLLOUT.mistake("the mean over the images, too", "Each image has a rollout of its own: (B, N, N).")
def mean_of_images(attention):
    return product(half(attention.mean(2))).mean(0)
