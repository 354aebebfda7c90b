"""Attention rollout."""

from tinyvit.exercises import solutions
from tinyvit.exercises.exercise import Exercise
from tinyvit.functional import softmax


def inputs(random, L, B, H, N):
    return (softmax(random.standard_normal((L, B, H, N, N)))[0],)


ROLLOUT = Exercise(
    "rollout",
    "Attention rollout (Abnar & Zuidema 2020): the product of all layers' ½ (mean over the heads) + ½ I, the last one "
    "on the left.",
    {"attention": "(L, B, H, N, N): L layers, each row adding up to 1"},
    {"R": "(B, N, N)"},
    right=solutions.rollout,
    shown=(solutions.rollout,),
    inputs=inputs,
    sizes=({"L": 3, "B": 2, "H": 4, "N": 5}, {"L": 4, "B": 1, "H": 2, "N": 6}),
)
EXERCISES = (ROLLOUT,)

ROLLOUT.edit("the identity alone", "Nothing has flowed yet: multiply by each layer.",
    ("layer @ result", "0 * layer + identity"))
ROLLOUT.edit("the product in the wrong order", "The first layer acts on the tokens first: it stands on the right.",
    ("layer @ result", "result @ layer"))
ROLLOUT.edit("the last layer is left out", "All layers have mixed the tokens; does the loop end one too early?",
    "attention = attention[:-1]")
ROLLOUT.edit("the first layer is left out", "All layers have mixed the tokens, the first as well.",
    "attention = attention[1:]")
ROLLOUT.edit("only the last layer", "It mixes the results of the layers before it: take the product of all.",
    "attention = attention[-1:]")
ROLLOUT.edit("attention is transposed", "A row is a token that attends, a column one that is attended to.",
    "attention = attention.mT")
ROLLOUT.edit("the residual connection is forgotten", "In every layer half of each token stays the same: + ½ I.",
    ("0.5 * attention", "attention"), (" + 0.5 * identity", ""))
ROLLOUT.edit("the identity is added, and nothing is halved", "The rows don't add up to 1 any more.", ("0.5 * ", ""))
ROLLOUT.edit("only the attention is halved", "The identity is halved as well, so that rows add up to 1.",
    ("0.5 * identity", "identity"))
ROLLOUT.edit("the sum over the heads", "The heads are averaged, so that rows still add up to 1.",
    (".mean(2)", ".sum(2)"))
ROLLOUT.edit("the largest of the heads", "The paper takes their mean.", (".mean(2)", ".max(2)"))
ROLLOUT.edit("the first head alone", "Take the mean over all heads.", (".mean(2)", "[:, :, 0]"))
ROLLOUT.edit("each head is rolled out, and then the mean taken", "The heads of a layer write to the same tokens: "
    "average them in each layer.", (".mean(2)", ""), ("return result", "return result.mean(1)"))
ROLLOUT.edit("the layers are averaged, not multiplied", "Each layer mixes the result of the one before it: multiply "
    "them.", ("return result", "return mixed.mean(0)"))
ROLLOUT.edit("an elementwise product", "* multiplies entry by entry; use the matrix product @.",
    ("return result", "return mixed.prod(0)"))
ROLLOUT.edit("the mean over the images, too", "Each image has a rollout of its own: (B, N, N).",
    ("return result", "return result.mean(0)"))
