"""The layer norm."""

from tinyvit.exercises.exercise import exercise, visible_eps


def inputs(random, B, N, D):
    weight, bias = 1 + random.standard_normal(D), random.standard_normal(D)
    return 0.5 + 2 * random.standard_normal((B, N, D)), weight, bias, visible_eps(random)


@exercise(inputs, "B N D")
def layernorm(x, weight, bias, eps):
    """Give every row of x mean 0 and variance 1 (ε is added to the variance), scale it by weight and shift it by bias.

      x       (B, N, D)
      weight  (D,)
      bias    (D,)
      eps     ε, a number

    returns
      y  (B, N, D)
    """
    centred = x - x.mean(-1, keepdims=True)
    rstd = ((centred * centred).mean(-1, keepdims=True) + eps) ** -0.5
    xhat = centred * rstd
    return xhat * weight + bias
