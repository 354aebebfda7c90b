"""Positions for another grid of patches."""

from tinyvit.exercises import solutions
from tinyvit.exercises.exercise import Case, Exercise
from tinyvit.functional.interpolation import bicubic, cell_centres
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


CENTRES = "(np.arange(new) + 0.5) * old / new - 0.5"
CUBICS, LINEAR = "np.where(t <= 1, near, far)", "np.maximum(0, 1 - t)"
CORNERS = CENTRES, "np.linspace(0, old - 1, new)"
DROPPED = CUBICS, f"{CUBICS} * (columns == neighbours)"

BICUBIC.edit("a is −0.5", "That is Keys' own choice; use PyTorch's, −0.75.", ("-0.75", "-0.5"))
BICUBIC.edit("a is +0.75", "a = −0.75 makes the weights negative from 1 to 2; it is Keys' parameter with its sign.",
    ("-0.75", "0.75"))
BICUBIC.edit("near the edge, the last weight replaces those before", "The outermost patch gets the weights of all "
    "missing ones: += and not =. NumPy's W[rows, columns] += w adds only once for repeated indices; add one offset "
    "after the other, or use np.add.at.", ("+= np.where", "= np.where"))
BICUBIC.edit("the weights are linear", "max(0, 1 − |t|) has a corner at each patch; use cubics.", (CUBICS, LINEAR))
BICUBIC.edit("the weights are linear, and the corners aligned", "Use cubics, and x = (j + ½) n/n′ − ½.",
    (CUBICS, LINEAR), CORNERS)
BICUBIC.edit("what lies beyond the edge is dropped", "The rows don't add up to 1: the outermost patch gets these "
    "weights.", DROPPED)
BICUBIC.edit("near the edge, weights are divided by their sum", "Add the missing weights to the outermost patch.",
    DROPPED, ("return matrix", "return matrix / matrix.sum(1, keepdims=True)"))
BICUBIC.edit("centres without their half", "A patch's centre lies half a patch after its edge: (j + ½) n/n′ − ½.",
    (CENTRES, "np.arange(new) * old / new"))
BICUBIC.edit("the last half is not taken off", "Place 0 is the centre of patch 0: (j + ½) n/n′ − ½.",
    (" / new - 0.5", " / new"))
BICUBIC.edit("the corners are aligned", "Centres are: patch j of n′ has its own at (j + ½)/n′ of the image.", CORNERS)
BICUBIC.edit("the way back", "Rows are new patches, columns old ones; this is the matrix from new to old.",
    "old, new = new, old")


def inputs(random, R, K, r, k, D):
    return random.standard_normal((R, K, D)), random.standard_normal((R, r)), random.standard_normal((K, k))


BACKWARD = Exercise(
    "resize_backward",
    "The gradient with respect to x of y[R, K] = Σ down[R, r] across[K, k] x[r, k], an interpolation summed over r, k.",
    {"dy": "(R, K, D): rows, columns of the new grid", "down": "(R, r)", "across": "(K, k)"},
    {"dx": "(r, k, D)"},
    right=solutions.resize_backward,
    shown=(resize_positions_backward,),
    inputs=inputs,
    sizes=({"R": 3, "K": 5, "r": 4, "k": 7, "D": 2}, {"R": 6, "K": 2, "r": 3, "k": 4, "D": 5}),
    equal={"R": 4, "K": 4, "r": 4, "k": 4, "D": 3},
)
EXERCISES = (BICUBIC, BACKWARD)

PRODUCT = '"Rr,Kk,RKd->rkd", down, across, dy'
BOTH = "The gradient goes back through both matrices."

BACKWARD.edit("the inverse", "The gradient does not invert the forward: it uses the transposed matrices.",
    "down, across = np.linalg.pinv(down).T, np.linalg.pinv(across).T")
BACKWARD.edit("only down", BOTH, (PRODUCT, '"Rr,RKd->rKd", down, dy'))
BACKWARD.edit("only across", BOTH, (PRODUCT, '"Kk,RKd->Rkd", across, dy'))
BACKWARD.edit("divided by the sums of the columns", "Just transpose the matrices: their rows need not add up to 1.",
    "down, across = down / down.sum(0), across / across.sum(0)")
BACKWARD.edit("down is not transposed", "y takes row R of down, and dx sums over R: a column of it.", "down = down.T")
BACKWARD.edit("across is not transposed", "y takes row K of across, and dx sums over K: a column of it.",
    "across = across.T")
BACKWARD.edit("neither matrix is transposed", "That is the forward: the backward sums over the other index.",
    "down, across = down.T, across.T")
BACKWARD.edit("down and across exchanged", "down belongs to the first axis, the rows.", "down, across = across, down")
