"""Tokens put back in their places, with a mask token in the gaps."""


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

PLACES = "np.arange(len(x))[:, None], index"

FORWARD.edit("the first sample's places for all", "Each sample has places of its own: row b of `index`.",
    (PLACES, ":, index[0]"))
FORWARD.edit("mask tokens behind the others", "The tokens go to the places that `index` says, in any order.",
    (PLACES, ":, : x.shape[1]"))
FORWARD.edit("zeros in the gaps", "A place that no token goes to gets the mask token.", "token = 0 * token")
FORWARD.edit("the mask token is added", "A token that is put in its place takes the mask token's.", ("] = x", "] += x"))

SUM = "others.sum((0, 1), keepdims=True)"
BACKWARD.edit("dtoken is summed over all places", "The mask token is only where no other token is.",
    ("others.sum", "dy.sum"))
BACKWARD.edit("dtoken is a mean", "Every place that has the mask token adds its gradient: a sum.",
    (SUM, f"{SUM} / (dy[..., 0].size - index.size)"))
BACKWARD.edit("dx without the order", "The gradient of token i of a sample is at the place that index[b, i] says.",
    ("return dy[rows, index]", "return dy[:, : index.shape[1]]"))
BACKWARD.edit("dtoken is summed over the wrong places", "The mask token is where no other token is.",
    ("others.sum", "dy[rows, index].sum"))
