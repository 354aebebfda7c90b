"""Depthwise convolution, a filter for each channel, and its gradients."""

import numpy as np

from tinyvit.exercises.exercise import exercise, lesson, normal_arrays


def inputs(random, B, C, H, W, P, Q, p):
    return *normal_arrays(random, (B, C, H, W), (C, P, Q)), p


SIZES = (
    {"B": 2, "C": 3, "H": 5, "W": 7, "P": 2, "Q": 3, "p": 1},
    {"B": 1, "C": 2, "H": 6, "W": 4, "P": 3, "Q": 2, "p": 2},
    {"B": 1, "C": 2, "H": 4, "W": 5, "P": 2, "Q": 3, "p": 0},
)


@exercise(inputs, SIZES)
def depthwise_conv2d(x, weight, padding):
    """Slide a filter of its own over each channel of padded images: y[b, c, i, j] = Σ weight[c, u, v] · x[b, c, i + u,
    j + v] over u and v.

      x        (B, C, H, W)
      weight   (C, P, Q)
      padding  rows and columns of zeros on each side of the images

    returns
      y  (B, C, H', W'), where H' = H + 2 padding − P + 1, and W' alike
    """
    P, Q = weight.shape[1:]
    x = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    H, W = x.shape[2] - P + 1, x.shape[3] - Q + 1
    places = np.ndindex(P, Q)
    return sum(weight[:, u, v, None, None] * x[:, :, u : u + H, v : v + W] for u, v in places)


lesson(depthwise_conv2d, """
Package: tinyvit.functional.conv.conv2d

Hints:
  Which sum of a convolution's formula is gone, if each channel has a filter of its own?
  For each place (u, v) of the filters: a number for each channel times the shifted images; add up.
  y[b, c, i, j] = Σ over u and v of weight[c, u, v] · x[b, c, i + u, j + v], with x padded.

Mistakes:
  the filters are turned round
    The place (u, v) meets the pixel (i + u, j + v).
    `weight = weight[:, ::-1, ::-1]`
  one filter for all channels
    Each channel has a filter of its own.
    `weight = weight[:1]`
  the padding is forgotten
    Zeros belong around the images, on all four sides.
    `padding = 0`
  all of the padding below and on the right
    Half of it belongs above and on the left of the images.
    `(padding, padding)` → `(0, 2 * padding)`
  a sum over the channels
    A depthwise convolution doesn't mix channels: there are as many after it.
    `weight[:, u, v, None, None] * x[:, :, u : u + H, v : v + W]` →
      `(weight[:, u, v, None, None] * x[:, :, u : u + H, v : v + W]).sum(1)`
  a sum over the channels, in each of them
    A depthwise convolution doesn't mix channels: C stays in both arrays.
    `weight[:, u, v, None, None] * x[:, :, u : u + H, v : v + W]` →
      `(weight[:, u, v, None, None] * x[:, :, u : u + H, v : v + W]).sum(1, keepdims=True).repeat(x.shape[1], 1)`
""")


@exercise(forward=depthwise_conv2d)
def depthwise_conv2d_backward(dy, x, weight, padding):
    """The gradients of a depthwise convolution of padded images: y[b, c, i, j] = Σ weight[c, u, v] · x[b, c, i + u, j
    + v] over u and v.

      dy       (B, C, H', W'), the gradient of y
      x        (B, C, H, W), not padded
      weight   (C, P, Q)
      padding  rows and columns of zeros on each side of the images

    returns
      dx       (B, C, H, W)
      dweight  (C, P, Q)
    """
    (H, W), (P, Q), (rows, columns) = x.shape[2:], weight.shape[1:], dy.shape[2:]
    x = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    dx, dweight = np.zeros(x.shape), np.zeros(weight.shape)
    for u in range(P):
        for v in range(Q):
            dx[:, :, u : u + rows, v : v + columns] += weight[:, u, v, None, None] * dy
            dweight[:, u, v] = (dy * x[:, :, u : u + rows, v : v + columns]).sum((0, 2, 3))
    return dx[:, :, padding : padding + H, padding : padding + W], dweight


lesson(depthwise_conv2d_backward, """
Package: tinyvit.functional.conv.conv2d_backward

Hints:
  In how many windows is one pixel, and by how many places and samples is one number of a filter used?
  As the forward, place by place (u, v): dy is added up at the pixels that it came from.
  dx[…, i + u, j + v] gets weight[c, u, v] · dy[…, i, j]; dweight[c, u, v] = Σ dy · x[…, i + u, j + v].

Mistakes:
  the filters are turned in dx
    The pixel (i + u, j + v) met weight[c, u, v], and gets its gradient from there. As a convolution of dy by the
    forward's formula the filters are turned round; as a sum over (u, v) they are not.
    `weight[:, u, v, None` → `weight[:, P - 1 - u, Q - 1 - v, None`
  the padding is cut off at one end of dx
    There is padding in front of the images too: they begin at row and column `padding`.
    `[:, :, padding : padding + H, padding : padding + W]` → `[:, :, :H, :W]`
  the filters are turned in dweight
    dweight[c, u, v] is dy times what weight[c, u, v] met.
    `dweight[:, u, v]` → `dweight[:, P - 1 - u, Q - 1 - v]`
  dweight with images padded below and on the right only
    Pad the images as in the forward, all around.
    `(padding, padding)` → `(0, 2 * padding)`
  the padding is not cut off of dx
    dx has the shape of x: without the rows and columns of zeros.
    `[:, :, padding : padding + H, padding : padding + W]` → ``
  dweight is of the first sample only
    Every sample used the filters: the sum is over all of them.
    `dy * x[:, :,` → `dy[:1] * x[:1, :,`
  dweight is a mean over the batch
    Each sample used the filters, so their gradient is the sum over the samples.
    `W], dweight` → `W], dweight / len(x)`
""")
