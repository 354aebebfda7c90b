"""The layer norm."""

from tinyvit.exercises.exercise import Case, exercise, lesson, visible_eps


def inputs(random, B, N, D):
    weight, bias = 1 + random.standard_normal(D), random.standard_normal(D)
    return 0.5 + 2 * random.standard_normal((B, N, D)), weight, bias, visible_eps(random)


def far_from_zero(random):
    x, weight, bias, eps = inputs(random, 2, 3, 5)
    return x + 1e7, weight, bias, eps


SIZES = {"B": 2, "N": 3, "D": 5}, {"B": 1, "N": 4, "D": 7}
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


lesson(layernorm, """
Package: tinyvit.functional.layernorm.layernorm

Hints:
  Mean and variance of what: of a row, of a column, or of everything? Which axis must be kept for broadcasting?
  y = weight · (x − mean) / √(variance + ε) + bias.
  μ = 1/D Σ x, σ² = 1/D Σ (x − μ)², x̂ = (x − μ) / √(σ² + ε), y = γ x̂ + β; means over the last axis, keepdims.

Steps:
  centred  layernorm.centred   x − mean(x)
  rstd     layernorm.rstd      1 / √(variance + ε)
  xhat     layernorm.xhat      centred · rstd
  y        layernorm.returned  γ xhat + β

Holds:
  y: without bias and weight, the rows should add up to 0: the mean is wrong, or what stands around it
    `((y - bias) / weight).sum(-1)`
  y: without bias and weight, the rows should have a variance just below 1: √(variance + ε) is wrong
    `((y - bias) / weight).var(-1) - 1 + eps / (x.var(-1) + eps)`

Mistakes:
  the sample variance
    The variance of a layer norm is the mean of (x − mean)²: divided by D, not by D − 1.
    `(centred * centred).mean(-1, keepdims=True)` → `x.var(-1, ddof=1, keepdims=True)`
  ε outside of the square root
    ε belongs to the variance, under the root: √(variance + ε).
    `((centred * centred).mean(-1, keepdims=True) + eps) ** -0.5` →
      `1 / ((centred * centred).mean(-1, keepdims=True) ** 0.5 + eps)`
  ε is forgotten
    Without ε a row of equal numbers divides by zero.
    `eps = 0`
  divided by the variance
    Divide by the standard deviation, the variance's square root.
    `** -0.5` → `** -1`
  mean and variance over the batch
    A batch norm averages over samples; a layer norm over each row alone.
    `mean(-1` → `mean(0`
  mean and variance over the tokens
    Each token has its own mean over its D numbers, the last axis.
    `mean(-1` → `mean(1`
  mean and variance over tokens and numbers
    Each token has its own mean and variance: axis=-1, not (1, 2).
    `mean(-1` → `mean((1, 2)`
  mean and variance over the whole array
    Each row has its own: axis=-1, with keepdims=True.
    `-1, keepdims=True` → ``
  the mean is not subtracted
    That is nearly an RMS norm: the rows of the result don't have mean 0.
    `centred * rstd` → `x * rstd`
  an RMS norm
    It divides by √mean(x²); a layer norm subtracts the mean first.
    ` - x.mean(-1, keepdims=True)` → ``
  weight is forgotten
    Scale the normalised rows by weight.
    ` * weight` → ``
  bias is forgotten
    Add the bias after scaling.
    ` + bias` → ``
  shifted before it is scaled
    First times weight, then plus bias: the bias is not scaled.
    `xhat * weight + bias` → `(xhat + bias) * weight`
""")
