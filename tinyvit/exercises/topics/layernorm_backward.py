"""The gradient of the layer norm."""

from tinyvit.exercises.exercise import exercise
from tinyvit.exercises.topics.layernorm import layernorm


@exercise(forward=layernorm)
def layernorm_backward(dy, x, weight, eps):
    """The gradients of the layer norm y = x̂ · weight + bias, where x̂ = (x − mean) / √(variance + ε) row by row.

      dy      (B, N, D), the gradient of y
      x       (B, N, D)
      weight  (D,)
      eps     ε, a number

    returns
      dx       (B, N, D)
      dweight  (D,)
      dbias    (D,)
    """
    centred = x - x.mean(-1, keepdims=True)
    rstd = ((centred * centred).mean(-1, keepdims=True) + eps) ** -0.5
    xhat, g = centred * rstd, dy * weight
    mean_g, mean_gxhat = g.mean(-1, keepdims=True), (g * xhat).mean(-1, keepdims=True)
    dx = rstd * (g - mean_g - xhat * mean_gxhat)
    rows = tuple(range(x.ndim - 1))
    return dx, (dy * xhat).sum(rows), dy.sum(rows)
