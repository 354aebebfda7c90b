"""Windows of tokens, and a bias for their relative positions."""

import numpy as np

from tinyvit.exercises.exercise import exercise, require_fit


def grid_inputs(random, B, R, C, D, window, shift):
    require_fit(shift < window)
    return random.standard_normal((B, R * window, C * window, D)), window, shift


def window_inputs(random, B, R, C, D, window, shift):
    require_fit(shift < window)
    x = random.standard_normal((B * R * C, window * window, D))
    return x, (R * window, C * window), window, shift


def table_inputs(random, H, side):
    return random.standard_normal(((2 * side - 1) ** 2, H)), side


def bias_inputs(random, H, side):
    return random.standard_normal((H, side * side, side * side)), side


GRIDS = "B R C D window=7,6 shift=2,1,0"
SIDES = "H side=4,3,1"


@exercise(grid_inputs, GRIDS)
def window_partition(x, window, shift):
    """Roll a grid of tokens by `shift` up and to the left, and cut it into windows of p×p tokens, row by row; the
    tokens of a window follow each other row by row as well.

      x       (B, H, W, D)
      window  p, tokens along a window's side; it divides H and W
      shift   rows and columns

    returns
      windows  (B · H/p · W/p, p · p, D)
    """
    B, H, W, D = x.shape
    x = np.roll(x, (-shift, -shift), (1, 2))
    cut = x.reshape(B, H // window, window, W // window, window, D)
    return cut.transpose(0, 1, 3, 2, 4, 5).reshape(-1, window * window, D)     # (B, rows, columns, p, p, D)


@exercise(window_inputs, GRIDS)
def window_reverse(windows, sides, window, shift):
    """Put windows back in their places in the grid, and roll it back: the inverse of window_partition.

      windows  (B · H/p · W/p, p · p, D)
      sides    (H, W)
      window   p, tokens along a window's side; it divides H and W
      shift    rows and columns

    returns
      x  (B, H, W, D)
    """
    (H, W), D = sides, windows.shape[-1]
    x = windows.reshape(-1, H // window, W // window, window, window, D)
    x = x.transpose(0, 1, 3, 2, 4, 5).reshape(-1, H, W, D)                     # (B, rows, p, columns, p, D)
    return np.roll(x, (shift, shift), (1, 2))


@exercise(table_inputs, SIDES)
def relative_bias(table, side):
    """For each head the bias of all pairs of tokens in a window: the entry of the table for the difference of their
    places. Tokens are counted row by row. The difference (Δrow, Δcolumn) is the query's place less the key's, and its
    entry is (Δrow + w − 1) · (2w − 1) + Δcolumn + w − 1.

      table  ((2w − 1)², H)
      side   w, of a window of w×w tokens

    returns
      bias  (H, w², w²), query by key
    """
    y, x = np.divmod(np.arange(side * side), side)
    down, across = y[:, None] - y + side - 1, x[:, None] - x + side - 1
    index = down * (2 * side - 1) + across
    return table[index].transpose(2, 0, 1)                                     # (H, n, n)


@exercise(bias_inputs, SIDES)
def relative_bias_backward(dy, side):
    """The gradient of the table from which relative_bias takes its entries.

      dy    (H, w², w²), the gradient of the bias, query by key
      side  w, of a window of w×w tokens

    returns
      dtable  ((2w − 1)², H)
    """
    y, x = np.divmod(np.arange(side * side), side)
    down, across = y[:, None] - y + side - 1, x[:, None] - x + side - 1
    index = down * (2 * side - 1) + across
    dtable = np.zeros(((2 * side - 1) ** 2, len(dy)))
    np.add.at(dtable, index, dy.transpose(1, 2, 0))
    return dtable
