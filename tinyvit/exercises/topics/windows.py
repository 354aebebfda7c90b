"""Windows of tokens, their mask, a bias for their relative positions, and the merging of patches."""

import numpy as np

from tinyvit.exercises.exercise import exercise, require_fit


def grid_inputs(random, B, R, C, D, window, shift):
    require_fit(shift < window)
    return random.standard_normal((B, R * window, C * window, D)), window, shift


def window_inputs(random, B, R, C, D, window, shift):
    require_fit(shift < window)
    x = random.standard_normal((B * R * C, window * window, D))
    return x, (R * window, C * window), window, shift


def mask_inputs(random, R, C, window, shift):
    require_fit(shift < window)
    return (R * window, C * window), window, shift


def merge_inputs(random, B, R, C, D):
    x = random.standard_normal((B, 2 * R, 2 * C, D))
    return (x,)


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


def regions_along(n, window, shift):
    """The regions 0, 1 and 2 of the tokens along a rolled axis."""
    token = np.arange(n)
    came_over = token >= n - shift
    return (token >= n - window) + 1 * came_over


@exercise(mask_inputs, "R C window=7,6 shift=2,1,0")
def window_mask(sides, window, shift):
    """Which tokens of a shifted window see each other, as 1 and 0. After the roll of window_partition, the last windows
    of a row or column hold tokens from both sides of the grid; only those that are neighbours in the grid see each
    other. Along an axis of n tokens, the rolled tokens from n − p to n − s − 1 belong together, and so do the last s,
    which came from the other side.

      sides   (H, W) of the grid
      window  p, tokens along a window's side; it divides H and W
      shift   s, rows and columns

    returns
      seen  (H/p · W/p, p · p, p · p), 1 where two tokens see each other, else 0
    """
    rows, columns = (regions_along(n, window, shift) for n in sides)
    regions = 3 * rows[:, None] + columns                                      # a number for each region
    grid = regions[None, :, :, None]
    windows = window_partition(grid, window, 0)[:, :, 0]
    return (windows[:, :, None] == windows[:, None]) * 1.0


@exercise(merge_inputs, "B R C D", "")
def merge_patches(x):
    """The four tokens of each square of 2×2 side by side, in the order upper left, lower left, upper right, lower right
    (Swin, Liu et al. 2021, section 3.1).

      x  (B, H, W, D), H and W even

    returns
      y  (B, H/2, W/2, 4D)
    """
    upper = x[:, 0::2]
    lower = x[:, 1::2]
    left = upper[:, :, 0::2], lower[:, :, 0::2]
    right = upper[:, :, 1::2], lower[:, :, 1::2]
    return np.concatenate([*left, *right], 3)


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
