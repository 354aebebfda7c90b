"""Windows of tokens, and a bias for their relative positions."""

import numpy as np

from tinyvit import functional as F
from tinyvit.exercises.exercise import Exercise


def grid_inputs(random, B, R, C, D, p, s):
    return random.standard_normal((B, R * p, C * p, D)), p, s


def window_inputs(random, B, R, C, D, p, s):
    return random.standard_normal((B * R * C, p * p, D)), (R * p, C * p), p, s


def table_inputs(random, H, w):
    return random.standard_normal(((2 * w - 1) ** 2, H)), w


def bias_inputs(random, H, w):
    return random.standard_normal((H, w * w, w * w)), w


GRIDS = {"B": 2, "R": 2, "C": 3, "D": 4, "p": 3, "s": 1}, {"B": 1, "R": 1, "C": 1, "D": 2, "p": 4, "s": 2}
SIDES = {"H": 3, "w": 3}, {"H": 2, "w": 4}
WINDOW, SHIFT = "p, tokens along a window's side; it divides H and W", "rows and columns"
PARTITION = Exercise(
    "window_partition",
    "Roll a grid of tokens by `shift` up and to the left, and cut it into windows of p×p tokens, row by row; the "
    "tokens of a window follow each other row by row as well.",
    {"x": "(B, H, W, D)", "window": WINDOW, "shift": SHIFT},
    {"windows": "(B · H/p · W/p, p · p, D)"},
    right=lambda x, window, shift: F.to_windows(x, window, shift)[0],
    shown=(F.to_windows,),
    inputs=grid_inputs,
    sizes=GRIDS,
)
REVERSE = Exercise(
    "window_reverse",
    "Put windows back in their places in the grid, and roll it back: the inverse of window_partition.",
    {"windows": "(B · H/p · W/p, p · p, D)", "sides": "(H, W)", "window": WINDOW, "shift": SHIFT},
    {"x": "(B, H, W, D)"},
    right=lambda windows, sides, window, shift: F.from_windows(windows, sides, window, shift)[0],
    shown=(F.from_windows,),
    inputs=window_inputs,
    sizes=GRIDS,
)
BIAS = Exercise(
    "relative_bias",
    "For each head the bias of all pairs of tokens in a window: the entry of the table for the difference of their "
    "places. Tokens are counted row by row. The difference (Δrow, Δcolumn) is the query's place less the key's, and "
    "its entry is (Δrow + w − 1) · (2w − 1) + Δcolumn + w − 1.",
    {"table": "((2w − 1)², H)", "side": "w, of a window of w×w tokens"},
    {"bias": "(H, w², w²), query by key"},
    right=lambda table, side: F.relative_bias(table, (side, side))[0],
    shown=(F.relative_bias,),
    inputs=table_inputs,
    sizes=SIDES,
)
BIAS_BACKWARD = Exercise(
    "relative_bias_backward",
    "The gradient of the table from which relative_bias takes its entries.",
    {"dy": "(H, w², w²), the gradient of the bias, query by key", "side": "w, of a window of w×w tokens"},
    {"dtable": "((2w − 1)², H)"},
    right=lambda dy, side: F.relative_bias_backward(
        dy, F.relative_bias(np.zeros(((2 * side - 1) ** 2, len(dy))), (side, side))[1]
    ),
    shown=(F.relative_bias_backward,),
    inputs=bias_inputs,
    sizes=SIDES,
)
EXERCISES = PARTITION, REVERSE, BIAS, BIAS_BACKWARD

AXES = "0, 1, 3, 2, 4, 5"
NO_TRANSPOSE = f".transpose({AXES})", ""

PARTITION.edit("the grid is not shifted", "Roll it by −shift along rows and columns before it is cut.", "shift = 0")
PARTITION.edit("the grid is rolled down and to the right", "Up and to the left is −shift along both axes.",
    "shift = -shift")
PARTITION.edit("rolled along the rows only", "Roll along both axes of the grid, 1 and 2.",
    ("(-shift, -shift)", "(-shift, 0)"))
PARTITION.edit("reshaped without a transpose", "After the reshape to (B, H/p, p, W/p, p, D) the axes of a window's "
    "rows and columns must come behind those of the windows.", NO_TRANSPOSE)
PARTITION.edit("the windows are counted column by column", "Windows follow each other row by row.",
    (AXES, "0, 3, 1, 2, 4, 5"))
PARTITION.edit("the tokens of a window are counted column by column", "They follow each other row by row.",
    (AXES, "0, 1, 3, 4, 2, 5"))

REVERSE.edit("the grid is not rolled back", "Roll it by +shift along rows and columns at the end.", "shift = 0")
REVERSE.edit("the grid is rolled further", "window_partition rolled by −shift; +shift takes that back.",
    "shift = -shift")
REVERSE.edit("reshaped without a transpose", "The windows' axes (H/p, W/p, p, p) must become (H/p, p, W/p, p) before "
    "they are joined.", NO_TRANSPOSE)
REVERSE.edit("rows and columns of a window are exchanged", "The tokens of a window follow each other row by row.",
    (AXES, "0, 1, 4, 2, 3, 5"))

LESS = "The difference is the place of the query less that of the key."
EXCHANGED = "rows and columns are exchanged", "Δrow counts 2w − 1 entries, Δcolumn one.", ("y, x =", "x, y =")
BIAS.edit("the key's place less the query's", LESS, ("2, 0, 1", "2, 1, 0"))
BIAS.edit(*EXCHANGED)
BIAS.edit("the differences are not made positive", "Add w − 1 to both: the smallest difference has entry 0. A negative "
    "number counts from the end of the table.", (" + side - 1", ""))
BIAS.edit("the distance in place of the difference", "Left and right, above and below have entries of their own.",
    ("y[:, None] - y", "abs(y[:, None] - y)"), ("x[:, None] - x", "abs(x[:, None] - x)"))

BIAS_BACKWARD.edit("the gradient is overwritten", "Many pairs use the same entry: its gradient is the sum over all of "
    "them (np.add.at).", ("np.add.at(dtable, index, dy.transpose(1, 2, 0))", "dtable[index] = dy.transpose(1, 2, 0)"))
BIAS_BACKWARD.edit("a mean over the pairs", "What is used several times gets the sum of the gradients, not their mean.",
    ("return dtable", "return dtable / np.bincount(index.ravel())[:, None]"))
BIAS_BACKWARD.edit("query and key are exchanged", LESS, ("1, 2, 0", "2, 1, 0"))
BIAS_BACKWARD.edit(*EXCHANGED)
