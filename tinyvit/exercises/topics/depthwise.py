"""Depthwise convolution, a filter for each channel, and its gradients."""

import numpy as np

from tinyvit.exercises.exercise import exercise, normal


@exercise(normal("BCHW", "CPQ", numbers=("padding",)), "B P Q C H=9,11 W=11,14 padding=1,2,0")
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
