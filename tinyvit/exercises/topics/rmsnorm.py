"""The RMS norm and its gradient, which the package itself doesn't use."""

from tinyvit.exercises.exercise import exercise, lesson, visible_eps


def inputs(random, B, N, D):
    return 0.5 + 2 * random.standard_normal((B, N, D)), 1 + random.standard_normal(D), visible_eps(random)


@exercise(inputs, ({"B": 2, "N": 3, "D": 5}, {"B": 1, "N": 4, "D": 7}))
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


lesson(rmsnorm, """
Hints:
  What is left of a layer norm if no mean is subtracted?
  y = weight · x / (the root of a mean + ε).
  y = γ x / √(1/D Σ x² + ε), the sum over the last axis, keepdims.

Mistakes:
  a layer norm
    An RMS norm leaves the mean alone: it divides by √mean(x²).
    `x = x - x.mean(-1, keepdims=True)`
  divided by the standard deviation
    The root mean square is that of x, without subtracting the mean.
    `(x * x).mean(-1, keepdims=True)` → `x.var(-1, keepdims=True)`
  the square root is forgotten
    Divide by the root of the mean square.
    `** -0.5` → `** -1`
  the sum of squares, not their mean
    It is the root of the mean: divided by D.
    `.mean(` → `.sum(`
  ε outside of the square root
    ε belongs to the mean square, under the root.
    `((x * x).mean(-1, keepdims=True) + eps) ** -0.5` → `1 / ((x * x).mean(-1, keepdims=True) ** 0.5 + eps)`
  ε is forgotten
    Without ε a row of zeros divides by zero.
    `eps = 0`
  weight is forgotten
    Scale the normalised rows by weight.
    ` * weight` → ``
""")


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


lesson(rmsnorm_backward, """
Hints:
  A layer norm's gradient has two terms besides g, one for the mean and one for the deviation. Which one stays?
  dx = r · (g − x̂ · something that is the same in the row), with g = dy γ and x̂ = r x.
  dx = r (g − x̂ mean(g x̂)), r = 1/√(mean(x²) + ε); dγ = Σ dy x̂ over all rows.

Mistakes:
  the 1/N term is missing
    The root mean square depends on the whole row: each entry of x changes every entry of x̂ through it. This adds a
    term to dx that has a mean over the row.
    ` - xhat * mean_gxhat` → ``
  the mean of a layer norm is still subtracted
    The forward subtracts no mean, so that term is absent from the backward: only one of the two means is left.
    `(g - xhat` → `(g - g.mean(-1, keepdims=True) - xhat`
  the wrong one of a layer norm's two means is left
    The one that came through the variance is left, with x̂ twice.
    `- xhat * mean_gxhat` → `- g.mean(-1, keepdims=True)`
  a sum where the 1/N term is a mean
    The term is divided by the row's length.
    `(g * xhat).mean` → `(g * xhat).sum`
  the 1/N term is added
    The larger the root mean square, the smaller x̂: the term is subtracted.
    `g - xhat` → `g + xhat`
  x̂ is forgotten in front of the 1/N term
    The derivative of the mean square is proportional to the entry itself.
    `xhat * mean_gxhat` → `mean_gxhat`
  x in place of x̂ in the 1/N term
    Derive it in terms of x̂, the normalised x.
    `g - xhat` → `g - x`
    `(g * xhat)` → `(g * x)`
  1/root mean square is forgotten
    x̂ divides by the root mean square, and so does the gradient.
    `dx = r * ` → `dx = `
  weight is forgotten in dx
    The gradient of x̂ is dy times weight.
    `dy * weight` → `dy`
  ε is forgotten
    It was added to the mean square in the forward.
    `eps = 0`
  x in place of x̂ in dweight
    weight was multiplied with the normalised x.
    `dy * xhat` → `dy * x`
  the broadcast weight is not summed
    All rows share it, so its gradient is a sum over all rows.
    `.sum(tuple(range(x.ndim - 1)))` → ``
  the broadcast weight is summed over samples only
    All tokens of all samples share it.
    `.sum(tuple(range(x.ndim - 1)))` → `.sum(0)`
  dweight is a mean
    The weight gets the sum of the gradients of all rows.
    `xhat).sum` → `xhat).mean`
""")
