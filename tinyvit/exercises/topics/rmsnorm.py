"""The RMS norm and its gradient, which the package itself doesn't use."""

from tinyvit.exercises.exercise import exercise, visible_eps


def inputs(random, B, N, D):
    return 0.5 + 2 * random.standard_normal((B, N, D)), 1 + random.standard_normal(D), visible_eps(random)


@exercise(inputs, "B N D")
def rmsnorm(x, weight, eps):
    """Divide every row of x by its root mean square, √(mean(x²) + ε), and scale it by weight (Zhang & Sennrich 2019).

      x       (B, N, D)
      weight  (D,)
      eps     ε, a number

    returns
      y  (B, N, D)
    """
    r = ((x * x).mean(-1, keepdims=True) + eps) ** -0.5
    return x * r * weight


@exercise(forward=rmsnorm)
def rmsnorm_backward(dy, x, weight, eps):
    """The gradients of the RMS norm y = x̂ · weight, where x̂ = x / √(mean(x²) + ε) row by row.

      dy      (B, N, D), the gradient of y
      x       (B, N, D)
      weight  (D,)
      eps     ε, a number

    returns
      dx       (B, N, D)
      dweight  (D,)
    """
    r = ((x * x).mean(-1, keepdims=True) + eps) ** -0.5
    xhat, g = x * r, dy * weight
    mean_gxhat = (g * xhat).mean(-1, keepdims=True)
    dx = r * (g - xhat * mean_gxhat)
    return dx, (dy * xhat).sum(tuple(range(x.ndim - 1)))
