"""SiLU, and the factors of squeeze and excitation."""

import numpy as np

from tinyvit.exercises.exercise import exercise, lesson


def silu_inputs(random, B, N, D):
    return random.standard_normal((B, N, D)), 2 * random.standard_normal((B, N, D))


def scale_inputs(random, B, C, H, W):
    return (*(random.standard_normal((B, C, H, W)) for _ in range(2)), random.standard_normal((B, C)))


@exercise(silu_inputs, ({"B": 2, "N": 3, "D": 4}, {"B": 1, "N": 2, "D": 5}))
def silu_backward(dy, x):
    """The gradient of y = x σ(x), where σ(x) = 1 / (1 + exp(−x)).

      dy  (B, N, D), the gradient of y
      x   (B, N, D)

    returns
      dx  (B, N, D)
    """
    gate = 0.5 * (1 + np.tanh(0.5 * x))
    return dy * gate * (1 + x * (1 - gate))


lesson(silu_backward, """
Package: tinyvit.functional.sigmoid.silu, tinyvit.functional.sigmoid.silu_backward

Hints:
  Both factors of x σ(x) depend on x. Which rule holds for a product?
  σ(x) + x σ′(x), times dy.
  dx = dy σ (1 + x (1 − σ)), as σ′ = σ (1 − σ).

Mistakes:
  the derivative of σ alone
    y is a product of x and σ(x): both factors move with x.
    `(1 + x * (1 - gate))` → `(1 - gate)`
  σ(x) is taken as a constant
    y is a product of x and σ(x): the second factor moves with x, too.
    ` * (1 + x * (1 - gate))` → ``
  the factor x is taken as a constant
    y is a product of x and σ(x): the first factor moves, too.
    `(1 + x` → `(x`
  a sign in the derivative of σ
    The derivative of σ is σ (1 − σ), above 0 everywhere.
    `1 + x` → `1 - x`
""")


@exercise(scale_inputs, ({"B": 2, "C": 3, "H": 4, "W": 5}, {"B": 1, "C": 2, "H": 5, "W": 3}))
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


lesson(scale_channels_backward, """
Package: tinyvit.functional.scale_channels.scale_channels, tinyvit.functional.scale_channels.scale_channels_backward

Hints:
  How many pixels used one factor, and of how many samples?
  dx is a product; dweight is a sum over two axes of a product.
  dx = dy · weight[:, :, None, None], dweight = Σ dy x over H and W.

Mistakes:
  dweight is a mean over the map
    All H · W pixels used the factor: their gradients are added up.
    `sum` → `mean`
  dweight is summed over the samples, too
    Each sample has factors of its own: (B, C).
    `sum((2, 3))` → `sum((0, 2, 3)) + 0 * weight`
  dweight without x
    The local derivative of y with respect to the factor is x.
    `(dy * x)` → `dy`
  dx without the factor
    The local derivative of y with respect to x is the factor of its map.
    ` * weight[:, :, None, None]` → ``
""")
