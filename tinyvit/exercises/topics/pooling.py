"""ReLU and pooling, and their gradients."""

import numpy as np

from tinyvit.exercises.exercise import Case, exercise, lesson, require_fit


def relu_inputs(random, B, C, H, W):
    x = random.integers(-3, 4, (B, C, H, W)).astype("float64")                 # with zeros
    return random.standard_normal(x.shape), x


def pool_inputs(random, B, C, H, W, P, s):
    return random.standard_normal((B, C, H, W)), P, s


def grid(H, W, P, s):
    require_fit(min(H, W) >= P)
    return (H - P) // s + 1, (W - P) // s + 1


def max_backward_inputs(random, B, C, H, W, P, s):
    x = random.integers(-3, 0, (B, C, H, W)).astype("float64")                 # with equal ones in a window
    return random.standard_normal((B, C, *grid(H, W, P, s))), x, P, s


def avg_backward_inputs(random, B, C, H, W, P, s):
    return random.standard_normal((B, C, *grid(H, W, P, s))), P, s, (H, W)


SIZES = {"B": 2, "C": 3, "H": 6, "W": 9, "P": 3, "s": 2}, {"B": 1, "C": 2, "H": 7, "W": 4, "P": 2, "s": 1}


@exercise(relu_inputs, ({"B": 2, "C": 3, "H": 4, "W": 5}, {"B": 1, "C": 2, "H": 3, "W": 7}))
def relu_backward(dy, x):
    """The gradient of y = max(x, 0); at x = 0 it is 0.

      dy  (B, C, H, W), the gradient of y
      x   (B, C, H, W)

    returns
      dx  (B, C, H, W)
    """
    return dy * (x > 0)


lesson(relu_backward, """
Package: tinyvit.functional.relu.relu, tinyvit.functional.relu.relu_backward

Hints:
  Where does y move when x does, and how fast?
  dy where something holds of x, and 0 elsewhere.
  dx = dy · [x > 0].

Mistakes:
  the gradient at 0 is 1
    At 0 it is 0, as in PyTorch: x > 0, not x >= 0.
    `>` → `>=`
  dy is cut off where it is negative
    What counts is the sign of x, not that of dy.
    `x > 0` → `dy > 0`
  the gradient where x is negative
    ReLU passes x where it is positive: there is its gradient.
    `>` → `<`
  dy times the output
    The derivative is 1 where x is positive, not x.
    `(x > 0)` → `np.maximum(x, 0)`
  dy times the sign of x
    Where x is negative, y doesn't move at all: 0, not −1.
    `(x > 0)` → `np.sign(x)`
""")


@exercise(pool_inputs, SIZES, traps=(Case("negative numbers", lambda random: (-random.random((1, 2, 5, 4)), 2, 1)),))
def max_pool2d(x, kernel, stride):
    """The largest number of each window of P×P pixels, of each channel by itself.

      x       (B, C, H, W)
      kernel  P, the side of a window in pixels
      stride  from a window to the next, in pixels

    returns
      y  (B, C, H', W'), where H' = (H − P) // stride + 1, and W' alike
    """
    H, W = (x.shape[2] - kernel) // stride + 1, (x.shape[3] - kernel) // stride + 1
    places = np.ndindex(kernel, kernel)
    seen = [x[:, :, u : u + stride * H : stride, v : v + stride * W : stride] for u, v in places]
    return np.max(seen, 0)


lesson(max_pool2d, """
Package: tinyvit.functional.pooling.max_pool2d

Hints:
  Which pixels does the window in row i and column j hold?
  For each place (u, v) of a window the pixels of all windows there are a slice with the stride as its step.
  y[b, c, i, j] = max over u and v of x[b, c, s i + u, s j + v].

Mistakes:
  the mean of each window
    That is average pooling.
    `np.max` → `np.mean`
  the smallest number of each window
    The largest is asked for.
    `np.max` → `np.min`
  the largest absolute value
    −5 is smaller than 2.
    `np.max(seen` → `np.max(np.abs(seen)`
  the stride is the window's side
    The windows move by stride pixels, and may overlap.
    `stride = kernel`
  the stride is 1
    The windows move by stride pixels.
    `stride = 1`
  the largest over the channels, too
    Each channel is pooled by itself.
    `(seen, 0)` → `(seen, (0, 2))`
  the maximum starts from 0
    All numbers of a window may be negative: start from one of them, or from −∞.
    `(seen, 0)` → `([0 * seen[0], *seen], 0)`
""")


@exercise(max_backward_inputs, SIZES)
def max_pool2d_backward(dy, x, kernel, stride):
    """The gradient of max pooling: each window's goes to its largest pixel, of equal ones to the first, row by row.

      dy      (B, C, H', W'), where H' = (H − P) // stride + 1, and W' alike: the gradient of y
      x       (B, C, H, W)
      kernel  P, the side of a window in pixels
      stride  from a window to the next, in pixels

    returns
      dx  (B, C, H, W)
    """
    scattered = np.zeros(x.shape)
    for b, c, i, j in np.ndindex(dy.shape):
        there = b, c, slice(i * stride, i * stride + kernel), slice(j * stride, j * stride + kernel)
        window, dwindow = x[there], scattered[there]                           # dwindow is a view
        largest = np.unravel_index(window.argmax(), window.shape)              # the first of equal ones
        dwindow[largest] += dy[b, c, i, j]
    return scattered


lesson(max_pool2d_backward, """
Package: tinyvit.functional.pooling.max_pool2d_backward

Hints:
  If a pixel that isn't the largest of its window moves a little, what happens to the result?
  Each dy goes to one pixel, the largest of its window; a pixel adds up what it gets from all windows.
  dx[s i + u, s j + v] += dy[i, j] for the (u, v) of the largest, of equal ones the first (argmax).

Mistakes:
  equal ones all get the gradient
    One of them made the result: the first, row by row.
    `np.unravel_index(window.argmax(), window.shape)` → `window == window.max()`
  equal ones share the gradient
    One of them made the result: the first, row by row.
    `np.unravel_index(window.argmax(), window.shape)` → `window == window.max()`
    `dy[b, c, i, j]` → `dy[b, c, i, j] / largest.sum()`
  the last of equal ones
    The first of them gets the gradient, row by row.
    `np.unravel_index(window.argmax(), window.shape)` → `tuple(np.argwhere(window == window.max())[-1])`
  dx is overwritten where windows overlap
    A pixel can be the largest of several windows: += in place of =.
    `+=` → `=`
  the maximum starts from 0
    All numbers of a window may be negative: start from one of them, or from −∞.
    `window.argmax()` → `np.maximum(window, 0).argmax()`
  the maximum starts from 0
    All numbers of a window may be negative: start from one of them, or from −∞.
    `dy[b, c, i, j]` → `dy[b, c, i, j] * (window > 0).any()`
  every pixel of a window gets its gradient
    Only the largest one moves the result.
    `[largest]` → `[:]`
  the gradient of average pooling
    The largest pixel gets all of it, the others nothing.
    `[largest]` → `[:]`
    `dy[b, c, i, j]` → `dy[b, c, i, j] / kernel**2`
""")


@exercise(avg_backward_inputs, SIZES)
def avg_pool2d_backward(dy, kernel, stride, img_size):
    """The gradient of average pooling, whose results are the means of windows of P×P pixels.

      dy        (B, C, H', W'), where H' = (H − P) // stride + 1, and W' alike: the gradient of y
      kernel    P, the side of a window in pixels
      stride    from a window to the next, in pixels
      img_size  (H, W) of the images

    returns
      dx  (B, C, H, W)
    """
    scattered = np.zeros((*dy.shape[:2], *img_size))
    H, W = dy.shape[2:]
    for u in range(kernel):
        for v in range(kernel):
            scattered[:, :, u : u + stride * H : stride, v : v + stride * W : stride] += dy / kernel**2
    return scattered


lesson(avg_pool2d_backward, """
Package: tinyvit.functional.pooling.avg_pool2d_backward

Hints:
  What share of the result is each pixel of a window?
  The same share of dy goes to all places (u, v) of a window; a pixel adds up what it gets from all windows.
  dx[s i + u, s j + v] += dy[i, j] / (P·P) for all u and v.

Mistakes:
  not divided by the pixels of a window
    Each pixel is 1/(P·P) of the mean.
    ` / kernel**2` → ``
  divided by the window's side
    A window has P·P pixels, not P.
    `kernel**2` → `kernel`
  dx is overwritten where windows overlap
    A pixel is in several windows, and gets a share of each: += in place of =.
    `+=` → `=`
  the first pixel of each window gets all
    Every pixel of a window is 1/(P·P) of its mean.
    `range(kernel)` → `range(1)`
    ` / kernel**2` → ``
  the stride is forgotten
    Window i begins at the pixel stride · i: dy goes to every stride-th pixel and its neighbours.
    `stride = 1`
""")
