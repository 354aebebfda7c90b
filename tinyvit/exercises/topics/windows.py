"""Windows of tokens, and a bias for their relative positions."""

import numpy as np

from tinyvit.exercises.exercise import exercise, lesson, require_fit


def grid_inputs(random, B, R, C, D, p, s):
    require_fit(s < p)
    return random.standard_normal((B, R * p, C * p, D)), p, s


def window_inputs(random, B, R, C, D, p, s):
    require_fit(s < p)
    return random.standard_normal((B * R * C, p * p, D)), (R * p, C * p), p, s


def table_inputs(random, H, w):
    return random.standard_normal(((2 * w - 1) ** 2, H)), w


def bias_inputs(random, H, w):
    return random.standard_normal((H, w * w, w * w)), w


GRIDS = {"B": 2, "R": 2, "C": 3, "D": 4, "p": 3, "s": 1}, {"B": 1, "R": 1, "C": 1, "D": 2, "p": 4, "s": 2}
SIDES = {"H": 3, "w": 3}, {"H": 2, "w": 4}


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


lesson(window_partition, """
Package: tinyvit.functional.shifted_windows.to_windows

Hints:
  Which tokens are in the first window after the roll? What is the shape with an axis for rows within a window?
  Reshape to (B, H/p, p, W/p, p, D), then bring both p together behind the axes of the windows.
  A roll by −shift along axes 1 and 2; axes in the order (B, H/p, W/p, p, p, D); the first three are joined.

Mistakes:
  the grid is not shifted
    Roll it by −shift along rows and columns before it is cut.
    `shift = 0`
  the grid is rolled down and to the right
    Up and to the left is −shift along both axes.
    `shift = -shift`
  rolled along the rows only
    Roll along both axes of the grid, 1 and 2.
    `(-shift, -shift)` → `(-shift, 0)`
  reshaped without a transpose
    After the reshape to (B, H/p, p, W/p, p, D) the axes of a window's rows and columns must come behind those of the
    windows.
    `.transpose(0, 1, 3, 2, 4, 5)` → ``
  the windows are counted column by column
    Windows follow each other row by row.
    `0, 1, 3, 2, 4, 5` → `0, 3, 1, 2, 4, 5`
  the tokens of a window are counted column by column
    They follow each other row by row.
    `0, 1, 3, 2, 4, 5` → `0, 1, 3, 4, 2, 5`
""")


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


lesson(window_reverse, """
Package: tinyvit.functional.shifted_windows.from_windows

Hints:
  What undoes a reshape and a transpose? In which order?
  Reshape to (B, H/p, W/p, p, p, D), exchange the axes in the middle, join, roll the other way.
  Axes in the order (B, H/p, p, W/p, p, D), joined to (B, H, W, D); then a roll by +shift along axes 1 and 2.

Mistakes:
  the grid is not rolled back
    Roll it by +shift along rows and columns at the end.
    `shift = 0`
  the grid is rolled further
    window_partition rolled by −shift; +shift takes that back.
    `shift = -shift`
  reshaped without a transpose
    The windows' axes (H/p, W/p, p, p) must become (H/p, p, W/p, p) before they are joined.
    `.transpose(0, 1, 3, 2, 4, 5)` → ``
  rows and columns of a window are exchanged
    The tokens of a window follow each other row by row.
    `0, 1, 3, 2, 4, 5` → `0, 1, 4, 2, 3, 5`
""")


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


lesson(relative_bias, """
Package: tinyvit.functional.relative_bias.relative_bias

Hints:
  What is the row, and what the column, of token number i in a window of side w?
  np.divmod gives both. Their differences for all pairs are arrays (w², w²), and the table is indexed by them.
  table[(yᵢ − yⱼ + w − 1)(2w − 1) + xᵢ − xⱼ + w − 1], with the heads' axis in front.

Mistakes:
  the key's place less the query's
    The difference is the place of the query less that of the key.
    `2, 0, 1` → `2, 1, 0`
  rows and columns are exchanged
    Δrow counts 2w − 1 entries, Δcolumn one.
    `y, x =` → `x, y =`
  the differences are not made positive
    Add w − 1 to both: the smallest difference has entry 0. A negative number counts from the end of the table.
    ` + side - 1` → ``
  the distance in place of the difference
    Left and right, above and below have entries of their own.
    `y[:, None] - y` → `abs(y[:, None] - y)`
    `x[:, None] - x` → `abs(x[:, None] - x)`
""")


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


lesson(relative_bias_backward, """
Package: tinyvit.functional.relative_bias.relative_bias_backward

Hints:
  How many pairs use the entry of difference (0, 0)?
  An entry's gradient is the sum of dy over all pairs with its difference.
  The entry of (i, j) gets += dy[h, i, j] for all pairs (NumPy's add.at); = would keep the last pair only.

Mistakes:
  the gradient is overwritten
    Many pairs use the same entry: its gradient is the sum over all of them (np.add.at).
    `np.add.at(dtable, index, dy.transpose(1, 2, 0))` → `dtable[index] = dy.transpose(1, 2, 0)`
  a mean over the pairs
    What is used several times gets the sum of the gradients, not their mean.
    `return dtable` → `return dtable / np.bincount(index.ravel())[:, None]`
  query and key are exchanged
    The difference is the place of the query less that of the key.
    `1, 2, 0` → `2, 1, 0`
  rows and columns are exchanged
    Δrow counts 2w − 1 entries, Δcolumn one.
    `y, x =` → `x, y =`
""")
