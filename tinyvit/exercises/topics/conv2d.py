"""The convolution of images with filters, and its gradients."""

import numpy as np

from tinyvit.exercises.exercise import exercise, normal

SIZES = "B P Q C O H=17,8 W=20,13 stride=2,1,3 padding=1,2,0"
EQUAL = "B=3 P=3 Q=3 C=3 O=3 H=3 W=3 stride=1 padding=1"


@exercise(normal("BCHW", "OCPQ", "O", numbers=("stride", "padding")), SIZES, equal=EQUAL)
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
