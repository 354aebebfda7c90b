"""Positions for another grid of patches."""

import numpy as np

from tinyvit.exercises.exercise import Case, Exercise
from tinyvit.functional.interpolation import bicubic, bilinear, cell_centres, zoom
from tinyvit.functional.positions import resize_positions_backward


def sides(random, old, new):
    return old, new


BICUBIC = Exercise(
    "bicubic",
    "Bicubic interpolation along one axis as a matrix (Keys 1981, a = −0.75): centres lie in the middle of their "
    "patches, and beyond the edge the outermost patch is repeated.",
    {"old": "patches along the axis", "new": "patches after resizing"},
    {"W": "(new, old), rows adding up to 1"},
    right=bicubic,
    shown=(cell_centres, bicubic),
    inputs=sides,
    sizes=({"old": 8, "new": 12}, {"old": 7, "new": 3}),
    traps=(Case("a single patch", lambda random: (1, 3)), Case("as many patches as before", lambda random: (4, 4))),
)


def inner(t):
    """The weight at distances up to 1."""
    return (1.25 * t - 2.25) * t**2 + 1


def outer(t):
    """The weight at distances from 1 to 2."""
    return -0.75 * (t - 2) ** 2 * (t - 1)


def weights(places, old):
    """Keys' weights at places (new,), the outermost patch standing in beyond the edge."""
    reach = np.arange(-2, old + 2)
    t = abs(places[:, None] - reach)
    wide = np.where(t <= 1, inner(t), np.where(t <= 2, outer(t), 0.0))
    wide[:, 2] += wide[:, 0] + wide[:, 1]
    wide[:, -3] += wide[:, -1] + wide[:, -2]
    return wide[:, 2:-2]


def cut_off(old, new):
    """The weights of the patches that there are, without what those beyond the edge would have."""
    t = abs(cell_centres(old, new)[:, None] - np.arange(old))
    return np.where(t <= 1, inner(t), np.where(t <= 2, outer(t), 0.0))


@BICUBIC.mistake("a is −0.5", "That is Keys' own choice; use PyTorch's, −0.75.")
def keys_own(old, new):
    return bicubic(old, new, a=-0.5)


@BICUBIC.mistake("a is +0.75", "a = −0.75 makes the weights negative from 1 to 2; it is Keys' parameter with its sign.")
def without_sign(old, new):
    return bicubic(old, new, a=0.75)


@BICUBIC.mistake(
    "near the edge, the last weight replaces those before",
    "The outermost patch gets the weights of all missing ones: += and not =. NumPy's W[rows, columns] += w "
    "adds only once for repeated indices; add one offset after the other, or use np.add.at.",
)  # fmt: skip
def replaced(old, new):
    matrix, places, rows = np.zeros((new, old)), cell_centres(old, new), np.arange(new)
    for offset in (-1, 0, 1, 2):
        neighbours = np.floor(places) + offset
        t = abs(places - neighbours)
        weight = np.where(t <= 1, inner(t), outer(t))
        matrix[rows, np.clip(neighbours, 0, old - 1).astype(int)] = weight
    return matrix


@BICUBIC.mistake("the weights are linear", "max(0, 1 − |t|) has a corner at each patch; use cubics.")
def linear_weights(old, new):
    return bilinear(old, new)


@BICUBIC.mistake("the weights are linear, and the corners aligned", "Use cubics, and x = (j + ½) n/n′ − ½.")
def linear_between_corners(old, new):
    return zoom(old, new)


@BICUBIC.mistake(
    "what lies beyond the edge is dropped", "The rows don't add up to 1: the outermost patch gets these weights."
)
def dropped(old, new):
    return cut_off(old, new)


@BICUBIC.mistake("near the edge, weights are divided by their sum", "Add the missing weights to the outermost patch.")
def divided(old, new):
    return cut_off(old, new) / cut_off(old, new).sum(1, keepdims=True)


@BICUBIC.mistake("centres without their half", "A patch's centre lies half a patch after its edge: (j + ½) n/n′ − ½.")
def edges(old, new):
    return weights(np.arange(new) * old / new, old)


@BICUBIC.mistake("the last half is not taken off", "Place 0 is the centre of patch 0: (j + ½) n/n′ − ½.")
def from_the_edge(old, new):
    return weights((np.arange(new) + 0.5) * old / new, old)


@BICUBIC.mistake("the corners are aligned", "Centres are: patch j of n′ has its own at (j + ½)/n′ of the image.")
def corners(old, new):
    return weights(np.linspace(0, old - 1, new), old)


@BICUBIC.mistake("the way back", "Rows are new patches, columns old ones; this is the matrix from new to old.")
def way_back(old, new):
    return bicubic(new, old)


def inputs(random, R, K, r, k, D):
    return random.standard_normal((R, K, D)), random.standard_normal((R, r)), random.standard_normal((K, k))


def backward(dy, down, across):
    return np.einsum("RKd,Rr,Kk->rkd", dy, down, across)


BACKWARD = Exercise(
    "resize_backward",
    "The gradient with respect to x of y[R, K] = Σ down[R, r] across[K, k] x[r, k], an interpolation summed over r, k.",
    {"dy": "(R, K, D): rows, columns of the new grid", "down": "(R, r)", "across": "(K, k)"},
    {"dx": "(r, k, D)"},
    right=backward,
    shown=(resize_positions_backward,),
    inputs=inputs,
    sizes=({"R": 3, "K": 5, "r": 4, "k": 7, "D": 2}, {"R": 6, "K": 2, "r": 3, "k": 4, "D": 5}),
    equal={"R": 4, "K": 4, "r": 4, "k": 4, "D": 3},
)
EXERCISES = (BICUBIC, BACKWARD)


@BACKWARD.mistake("the inverse", "The gradient does not invert the forward: it uses the transposed matrices.")
def inverse(dy, down, across):
    return np.einsum("RKd,rR,kK->rkd", dy, np.linalg.pinv(down), np.linalg.pinv(across))


@BACKWARD.mistake("only down", "The gradient goes back through both matrices.")
def only_down(dy, down, across):
    return np.einsum("RKd,Rr->rKd", dy, down)


@BACKWARD.mistake("only across", "The gradient goes back through both matrices.")
def only_across(dy, down, across):
    return np.einsum("RKd,Kk->Rkd", dy, across)


@BACKWARD.mistake("divided by the sums of the columns", "Just transpose the matrices: their rows need not add up to 1.")
def columns_add_up(dy, down, across):
    return backward(dy, down / down.sum(0), across / across.sum(0))


@BACKWARD.misreading("down is not transposed", "y takes row R of down, and dx sums over R: a column of it.")
def down_forward(dy, down, across):
    return dy, down.T, across


@BACKWARD.misreading("across is not transposed", "y takes row K of across, and dx sums over K: a column of it.")
def across_forward(dy, down, across):
    return dy, down, across.T


@BACKWARD.misreading("neither matrix is transposed", "That is the forward: the backward sums over the other index.")
def forward(dy, down, across):
    return dy, down.T, across.T


@BACKWARD.misreading("down and across exchanged", "down belongs to the first axis, the rows.")
def exchanged(dy, down, across):
    return dy, across, down
