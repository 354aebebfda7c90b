"""The layer norm."""

from tinyvit.exercises.exercise import Case, exercise, visible_eps


def inputs(random, B, N, D):
    weight, bias = 1 + random.standard_normal(D), random.standard_normal(D)
    return 0.5 + 2 * random.standard_normal((B, N, D)), weight, bias, visible_eps(random)


def far_from_zero(random):
    x, weight, bias, eps = inputs(random, 2, 3, 5)
    return x + 1e7, weight, bias, eps


SIZES = "B=2 N=3 D=5", "B=1 N=4 D=7"
CANCELLED = (
    "the variance as E[x²] − E[x]²",
    "That is right on paper, but it subtracts two large numbers that are nearly equal, and few digits of the "
    "difference are left. Subtract the mean first, then square.",
)


@exercise(
    inputs, SIZES,
    traps=(Case("rows whose mean is 10⁷", far_from_zero, mistake=CANCELLED, tolerance=1e-6),),
)
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
