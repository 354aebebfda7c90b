"""ReLU and pooling, and their gradients."""

import numpy as np

from tinyvit.exercises.domain import Case
from tinyvit.exercises.exercise import exercise, normal, require_fit


def relu_inputs(random, B, C, H, W):
    x = random.integers(-3, 4, (B, C, H, W)).astype("float64")                 # with zeros
    return random.standard_normal(x.shape), x


def grid(H, W, kernel, stride):
    require_fit(min(H, W) >= kernel)
    return (H - kernel) // stride + 1, (W - kernel) // stride + 1


def max_backward_inputs(random, B, C, H, W, kernel, stride):
    x = random.integers(-6, 2, (B, C, H, W)).astype("float64")                 # with equal ones in a window
    return random.standard_normal((B, C, *grid(H, W, kernel, stride))), x, kernel, stride


def avg_backward_inputs(random, B, C, H, W, kernel, stride):
    return random.standard_normal((B, C, *grid(H, W, kernel, stride))), kernel, stride, (H, W)


SIZES = "B=3,6,1 C=4,3,1 H=11,9 W=14,10 kernel=3,4,1 stride=2,1,kernel,5"


@exercise(relu_inputs, "B C H W")
def relu_backward(dy, x):
    """The gradient of y = max(x, 0); at x = 0 it is 0.

      dy  (B, C, H, W), the gradient of y
      x   (B, C, H, W)

    returns
      dx  (B, C, H, W)
    """
    return dy * (x > 0)


LOW = Case("numbers below −10⁶", lambda random: (-1e6 - random.random((1, 2, 5, 7)), 2, 1))


@exercise(normal("BCHW", numbers=("kernel", "stride")), SIZES, extra=(LOW,))
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
