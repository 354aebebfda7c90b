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

# -- windows ----------------------------------------------------------------------------------------------------------


def cut(x, window):
    B, H, W, D = x.shape
    return x.reshape(B, H // window, window, W // window, window, D)


def joined(windows, sides, window):
    (H, W), D = sides, windows.shape[2]
    return windows.reshape(-1, H // window, W // window, window, window, D)


def rolled(x, shift):
    return np.roll(x, (shift, shift), (1, 2))


@PARTITION.misreading("the grid is not shifted", "Roll it by −shift along rows and columns before it is cut.")
def not_shifted(x, window, shift):
    return x, window, 0


@PARTITION.mistake("the grid is rolled down and to the right", "Up and to the left is −shift along both axes.")
def rolled_down(x, window, shift):
    return F.to_windows(rolled(x, shift), window)[0]


@PARTITION.mistake("rolled along the rows only", "Roll along both axes of the grid, 1 and 2.")
def one_axis(x, window, shift):
    return F.to_windows(np.roll(x, -shift, 1), window)[0]


@PARTITION.mistake(
    "reshaped without a transpose",
    "After the reshape to (B, H/p, p, W/p, p, D) the axes of a window's rows and columns must come behind those of the "
    "windows.",
)
def without_transpose(x, window, shift):
    return rolled(x, -shift).reshape(-1, window * window, x.shape[-1])


@PARTITION.mistake("the windows are counted column by column", "Windows follow each other row by row.")
def windows_by_column(x, window, shift):
    return cut(rolled(x, -shift), window).transpose(0, 3, 1, 2, 4, 5).reshape(-1, window * window, x.shape[-1])


@PARTITION.mistake("the tokens of a window are counted column by column", "They follow each other row by row.")
def tokens_by_column(x, window, shift):
    return cut(rolled(x, -shift), window).transpose(0, 1, 3, 4, 2, 5).reshape(-1, window * window, x.shape[-1])


@REVERSE.misreading("the grid is not rolled back", "Roll it by +shift along rows and columns at the end.")
def not_rolled_back(windows, sides, window, shift):
    return windows, sides, window, 0


@REVERSE.mistake("the grid is rolled further", "window_partition rolled by −shift; +shift takes that back.")
def rolled_further(windows, sides, window, shift):
    return rolled(F.from_windows(windows, sides, window)[0], -shift)


@REVERSE.mistake(
    "reshaped without a transpose",
    "The windows' axes (H/p, W/p, p, p) must become (H/p, p, W/p, p) before they are joined.",
)
def reverse_without_transpose(windows, sides, window, shift):
    return rolled(joined(windows, sides, window).reshape(-1, *sides, windows.shape[-1]), shift)


@REVERSE.mistake("rows and columns of a window are exchanged", "The tokens of a window follow each other row by row.")
def exchanged_in_a_window(windows, sides, window, shift):
    turned = joined(windows, sides, window).transpose(0, 1, 4, 2, 3, 5)
    return rolled(turned.reshape(-1, *sides, windows.shape[-1]), shift)


# -- relative positions -----------------------------------------------------------------------------------------------


def index_of(side, sign=1, exchanged=False):
    """The entry of each pair of tokens (n, n)."""
    y, x = np.divmod(np.arange(side * side), side)
    y, x = (x, y) if exchanged else (y, x)
    down, across = (sign * (part[:, None] - part) + side - 1 for part in (y, x))
    return down * (2 * side - 1) + across


@BIAS.mistake("the key's place less the query's", "The difference is the place of the query less that of the key.")
def key_less_query(table, side):
    return table[index_of(side, sign=-1)].transpose(2, 0, 1)


@BIAS.mistake("rows and columns are exchanged", "Δrow counts 2w − 1 entries, Δcolumn one.")
def exchanged(table, side):
    return table[index_of(side, exchanged=True)].transpose(2, 0, 1)


@BIAS.mistake(
    "the differences are not made positive",
    "Add w − 1 to both: the smallest difference has entry 0. A negative number counts from the end of the table.",
)
def not_offset(table, side):
    y, x = np.divmod(np.arange(side * side), side)
    return table[(y[:, None] - y) * (2 * side - 1) + x[:, None] - x].transpose(2, 0, 1)


@BIAS.mistake("the distance in place of the difference", "Left and right, above and below have entries of their own.")
def distances(table, side):
    y, x = np.divmod(np.arange(side * side), side)
    down, across = (abs(part[:, None] - part) + side - 1 for part in (y, x))
    return table[down * (2 * side - 1) + across].transpose(2, 0, 1)


def scattered(dy, side, index, added=True):
    dtable = np.zeros(((2 * side - 1) ** 2, len(dy)))
    if added:
        np.add.at(dtable, index.ravel(), dy.reshape(len(dy), -1).T)
    else:
        dtable[index.ravel()] = dy.reshape(len(dy), -1).T
    return dtable


@BIAS_BACKWARD.mistake(
    "the gradient is overwritten",
    "Many pairs use the same entry: its gradient is the sum over all of them (np.add.at).",
)
def overwritten(dy, side):
    return scattered(dy, side, index_of(side), added=False)


@BIAS_BACKWARD.mistake(
    "a mean over the pairs", "What is used several times gets the sum of the gradients, not their mean."
)
def mean_over_pairs(dy, side):
    index = index_of(side)
    return scattered(dy, side, index) / np.bincount(index.ravel())[:, None]


@BIAS_BACKWARD.mistake("query and key are exchanged", "The difference is the place of the query less that of the key.")
def exchanged_pairs(dy, side):
    return scattered(dy, side, index_of(side, sign=-1))


@BIAS_BACKWARD.mistake("rows and columns are exchanged", "Δrow counts 2w − 1 entries, Δcolumn one.")
def exchanged_axes(dy, side):
    return scattered(dy, side, index_of(side, exchanged=True))
