"""The convolution of images with filters, and its gradients."""

import numpy as np

from tinyvit.exercises.exercise import exercise, lesson, normal_arrays


def inputs(random, B, C, H, W, O, P, Q, s, p):  # noqa: E741
    return *normal_arrays(random, (B, C, H, W), (O, C, P, Q), (O,)), s, p


SIZES = (
    {"B": 2, "C": 3, "H": 7, "W": 9, "O": 4, "P": 2, "Q": 3, "s": 2, "p": 1},
    {"B": 1, "C": 2, "H": 6, "W": 5, "O": 3, "P": 3, "Q": 2, "s": 1, "p": 2},
    {"B": 1, "C": 2, "H": 4, "W": 7, "O": 3, "P": 2, "Q": 3, "s": 2, "p": 0},
)
EQUAL = {"B": 3, "C": 3, "H": 3, "W": 3, "O": 3, "P": 3, "Q": 3, "s": 1, "p": 1}


@exercise(inputs, SIZES, equal=EQUAL)
def conv2d(x, weight, bias, stride, padding):
    """Slide filters over padded images: y[b, o, i, j] = bias[o] + Σ weight[o, c, u, v] · x[b, c, s i + u, s j + v]
    over c, u and v, with the stride s.

      x        (B, C, H, W)
      weight   (O, C, P, Q)
      bias     (O,)
      stride   from a window to the next, in pixels
      padding  rows and columns of zeros on each side of the images

    returns
      y  (B, O, H', W'), where H' = (H + 2 padding − P) // stride + 1, and W' alike
    """
    P, Q = weight.shape[2:]
    x = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    H, W = (x.shape[2] - P) // stride + 1, (x.shape[3] - Q) // stride + 1
    y = 0.0
    for u in range(P):
        for v in range(Q):
            there = x[:, :, u : u + stride * H : stride, v : v + stride * W : stride]
            y = y + np.einsum("oc,bcij->boij", weight[:, :, u, v], there)
    return y + bias[:, None, None]


lesson(conv2d, """
Package: tinyvit.functional.conv.conv2d

Hints:
  A filter has P·Q places. Which pixels does one of them see, when the filter slides over the padded image?
  For each place (u, v) one product over the channels: (O, C) times the shifted images (B, C, H', W'); add up.
  y = b + Σ over (u, v) of weight[…, u, v] · x[…, s i + u, s j + v], H' = (H + 2p − P) // s + 1.

Mistakes:
  the filters are turned round
    That is the convolution of mathematics (scipy.signal.convolve2d). In networks the filter stays as it is: the place
    (u, v) meets the pixel (s i + u, s j + v).
    `weight = weight[..., ::-1, ::-1]`
  the stride is forgotten
    The windows move by stride pixels, and there are fewer of them.
    `stride = 1`
  the first windows in place of every stride-th one
    The shape is right, but the windows are next to each other: window i starts at pixel stride · i.
    `u : u + stride * H : stride, v : v + stride * W : stride` → `u : u + H, v : v + W`
  the padding is forgotten
    Zeros belong around the images, on all four sides.
    `padding = 0`
  padding below and on the right only
    The zeros stand on all four sides: np.pad takes (before, after) per axis.
    `(padding, padding)` → `(0, padding)`
  all of the padding below and on the right
    Half of it belongs above and on the left of the images.
    `(padding, padding)` → `(0, 2 * padding)`
  padded with the pixels of the edge
    The padding is zeros: np.pad without a mode.
    `(padding, padding)))` → `(padding, padding)), "edge")`
  the bias is forgotten
    Each filter has a bias, which is added at all places.
    ` + bias[:, None, None]` → ``
  bias is added along the columns
    There is one bias for each filter: bias[:, None, None] lines it up with O.
    `bias[:, None, None]` → `bias`
  the axes of filters and channels are exchanged
    weight is (O, C, P, Q): the sum goes over its second axis.
    `weight = weight.swapaxes(0, 1)`
  rows and columns of the filters are exchanged
    u counts rows of the filter and of the image, v columns.
    `weight = weight.mT`
""")


@exercise(forward=conv2d)
def conv2d_backward(dy, x, weight, stride, padding):
    """The gradients of a convolution of padded images: y[b, o, i, j] = bias[o] + Σ weight[o, c, u, v] · x[b, c, s i +
    u, s j + v] over c, u and v, with the stride s.

      dy       (B, O, H', W'), the gradient of y; H' = (H + 2 padding − P) // stride + 1, and W' alike
      x        (B, C, H, W), not padded
      weight   (O, C, P, Q)
      stride   from a window to the next, in pixels
      padding  rows and columns of zeros on each side of the images

    returns
      dx       (B, C, H, W)
      dweight  (O, C, P, Q)
      dbias    (O,)
    """
    (H, W), (P, Q), (rows, columns) = x.shape[2:], weight.shape[2:], dy.shape[2:]
    x = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    dx, dweight = np.zeros(x.shape), np.zeros(weight.shape)
    for u in range(P):
        for v in range(Q):
            down, across = slice(u, u + stride * rows, stride), slice(v, v + stride * columns, stride)
            dx[:, :, down, across] += np.einsum("oc,boij->bcij", weight[:, :, u, v], dy)
            dweight[:, :, u, v] = np.einsum("boij,bcij->oc", dy, x[:, :, down, across])
    return dx[:, :, padding : padding + H, padding : padding + W], dweight, dy.sum((0, 2, 3))


lesson(conv2d_backward, """
Package: tinyvit.functional.conv.conv2d_backward

Hints:
  In how many windows is one pixel, and what does a thing get that is used many times?
  As the forward, place by place (u, v): dy is added up at the pixels that it came from.
  dx[…, s i + u, s j + v] gets weight[…, u, v]ᵀ dy, dweight[…, u, v] = Σ dy x[…, s i + u, s j + v], db = Σ dy.

Mistakes:
  the filters are turned in dx
    The pixel (s i + u, s j + v) met weight[…, u, v], and gets its gradient from there. If you write dx as a
    convolution of dy by the forward's formula, turn the filters round; if you add up over (u, v), don't.
    `weight[:, :, u, v], dy` → `weight[:, :, P - 1 - u, Q - 1 - v], dy`
  the stride is forgotten in dx
    Window i saw the pixels s i + u: dy goes there, to every stride-th pixel.
    `dx[:, :, down, across]` → `dx[:, :, u : u + rows, v : v + columns]`
  dx is overwritten where windows overlap
    A pixel is in several windows, and its gradient is the sum over them: += in place of =.
    `+=` → `=`
  the padding is cut off at one end of dx
    There is padding in front of the images too: they begin at row and column `padding`.
    `[:, :, padding : padding + H, padding : padding + W]` → `[:, :, :H, :W]`
  the filters are turned in dweight
    dweight[…, u, v] is dy times what weight[…, u, v] met.
    `dweight[:, :, u, v]` → `dweight[:, :, P - 1 - u, Q - 1 - v]`
  the stride is forgotten in dweight
    dy[i] belongs to the pixels s i + u, not i + u, in dweight as well.
    `dy, x[:, :, down, across]` → `dy, x[:, :, u : u + rows, v : v + columns]`
  dweight with images padded below and on the right only
    Pad the images as in the forward, all around.
    `(padding, padding)` → `(0, 2 * padding)`
  the broadcast bias is summed over samples only
    All places have the bias: sum over (0, 2, 3).
    `sum((0, 2, 3))` → `sum(0)`
  the broadcast bias is summed over places only
    Each sample used the bias: sum over (0, 2, 3).
    `sum((0, 2, 3))` → `sum((2, 3))`
  the broadcast bias is not summed
    It was added at all places of all samples.
    `dy.sum((0, 2, 3))` → `dy`
  the padding is not cut off of dx
    dx has the shape of x: without the rows and columns of zeros.
    `[:, :, padding : padding + H, padding : padding + W]` → ``
  the bias's gradient is a mean
    All places used the bias: it gets the sum of their gradients.
    `sum((0, 2, 3))` → `mean((0, 2, 3))`
  dweight is a mean over the batch
    Each sample used the filters, so their gradient is the sum over the samples.
    `W], dweight` → `W], dweight / len(x)`
  the axes of filters and channels are exchanged in dx
    The sum over the filters is over weight's first axis.
    `weight[:, :, u, v], dy` → `weight[:, :, u, v].T, dy`
""")
