"""SiLU, and the factors of squeeze and excitation."""

import numpy as np

from tinyvit.exercises.exercise import exercise, normal


def silu_inputs(random, B, N, D):
    return random.standard_normal((B, N, D)), 2 * random.standard_normal((B, N, D))


@exercise(silu_inputs, "B N D")
def silu_backward(dy, x):
    """The gradient of y = x σ(x), where σ(x) = 1 / (1 + exp(−x)).

      dy  (B, N, D), the gradient of y
      x   (B, N, D)

    returns
      dx  (B, N, D)
    """
    gate = 0.5 * (1 + np.tanh(0.5 * x))
    return dy * gate * (1 + x * (1 - gate))


@exercise(normal("BCHW", "BCHW", "BC"), "B C H W")
def scale_channels_backward(dy, x, weight):
    """The gradients of y[b, c, i, j] = x[b, c, i, j] · weight[b, c]: each map of each sample has a factor.

      dy      (B, C, H, W), the gradient of y
      x       (B, C, H, W)
      weight  (B, C)

    returns
      dx       (B, C, H, W)
      dweight  (B, C)
    """
    return dy * weight[:, :, None, None], (dy * x).sum((2, 3))
