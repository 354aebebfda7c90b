"""The gradient of the layer norm."""

from tinyvit.exercises.exercise import exercise, lesson
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


lesson(layernorm_backward, """
Package: tinyvit.functional.layernorm.layernorm_backward

Hints:
  A number of a row changes its mean and its deviation, and so all outputs. How many paths are there?
  dx = 1/σ · (g − something that is the same in the row − x̂ · something that is the same in the row), g = dy γ.
  dx = (g − mean(g) − x̂ mean(g x̂)) / √(σ² + ε); dγ = Σ dy x̂ and dβ = Σ dy, over all rows.

Steps:
  xhat        layernorm_backward.xhat        (x − mean(x)) / √(variance + ε)
  g           layernorm_backward.g           dy γ
  mean_g      layernorm_backward.mean_g      mean(g) of each row
  mean_gxhat  layernorm_backward.mean_gxhat  mean(g xhat) of each row
  dx          layernorm_backward.dx          (g − mean_g − xhat mean_gxhat) / √(variance + ε)

Holds:
  dx: the rows of dx should add up to 0, since adding a constant to a row of x changes nothing, so the path through
    the mean is missing or wrong
    `dx.sum(-1)`
  dx: dx should have almost no part along x̂ (stretching a row changes little): the path through the variance is
    missing or wrong
    `((dx - dy * weight * eps * (x.var(-1, keepdims=True) + eps) ** -1.5) * (x - x.mean(-1, keepdims=True))).sum(-1)`
  dbias: dbias should be dy, added up over all rows
    `dbias - dy.sum((0, 1))`
  dweight: weight · dweight should be the sum of dy · weight · x̂ over everything
    `dweight @ weight - (dy * weight * (x - x.mean(-1, keepdims=True)) * (x.var(-1, keepdims=True) + eps)**-0.5).sum()`

Mistakes:
  the 1/N terms are missing
    Mean and standard deviation depend on the whole row: each entry of x changes every entry of x̂ through them. Each
    adds a term to dx, and each term has a mean over the row: 1/N times a sum over all N = D entries.
    ` - mean_g - xhat * mean_gxhat` → ``
  the mean's 1/N term is missing
    The gradient through the variance is there, the one through the mean is missing.
    ` - mean_g ` → ` `
  the variance's 1/N term is missing
    The gradient through the mean is there, the one through the variance is missing.
    ` - xhat * mean_gxhat` → ``
  sums where the 1/N terms are means
    Both terms, through mean and variance, are divided by the row's length.
    `g.mean(-1, keepdims=True), (g * xhat).mean(-1, keepdims=True)` →
      `g.sum(-1, keepdims=True), (g * xhat).sum(-1, keepdims=True)`
  a sum where the mean's 1/N term is a mean
    The term through the variance is divided by the row's length, and so is this.
    `g.mean(-1` → `g.sum(-1`
  a sum where the variance's 1/N term is a mean
    The term through the mean is divided by the row's length, and so is this.
    `xhat).mean(-1` → `xhat).sum(-1`
  the variance's 1/N term is added
    The larger the variance, the smaller x̂: its term is subtracted, as the mean's term is.
    `- xhat` → `+ xhat`
  x̂ is forgotten in front of the variance's 1/N term
    The derivative of the variance is proportional to an entry's distance from the mean: multiply by x̂.
    `- xhat * mean_gxhat` → `- mean_gxhat`
  x in place of x̂ in the variance's term
    Derive it in terms of x̂, the normalised x; x itself does not occur in it.
    `(g * xhat)` → `(g * x)`
    `- xhat` → `- x`
  1/standard deviation occurs twice
    x̂ divides by the standard deviation once, and so does the gradient.
    `dx = rstd` → `dx = rstd**2`
  σ² where the variance's term has σ³
    The derivative of (variance + ε)^(−1/2) is −1/2 · (variance + ε)^(−3/2): the root's power 3, 1/σ³.
    `- xhat` → `- xhat / rstd`
  σ⁴ where the variance's term has σ³
    The derivative of (variance + ε)^(−1/2) is −1/2 · (variance + ε)^(−3/2): the root's power 3, 1/σ³.
    `- xhat` → `- xhat * rstd`
  1/standard deviation is forgotten
    x̂ divides by the standard deviation, and so does the gradient.
    `dx = rstd * ` → `dx = `
  weight is multiplied too late
    dy is multiplied by weight before the means are taken, not after them.
    `dy * weight` → `dy`
    `dx = rstd` → `dx = weight * rstd`
  weight is forgotten in dx
    y is x̂ times weight, so the gradient of x̂ is dy times weight.
    `dy * weight` → `dy`
  means over the tokens' axis
    Each row has its own two means, over its D numbers: axis=-1, with keepdims=True.
    `g.mean(-1, keepdims=True), (g * xhat).mean(-1, keepdims=True)` →
      `g.mean(1, keepdims=True), (g * xhat).mean(1, keepdims=True)`
  means over the batch's axis
    Each row has its own two means, over its D numbers: axis=-1, with keepdims=True.
    `g.mean(-1, keepdims=True), (g * xhat).mean(-1, keepdims=True)` →
      `g.mean(0, keepdims=True), (g * xhat).mean(0, keepdims=True)`
  means over tokens and numbers
    Each row has its own two means, over its D numbers: axis=-1, with keepdims=True.
    `g.mean(-1, keepdims=True), (g * xhat).mean(-1, keepdims=True)` →
      `g.mean((1, 2), keepdims=True), (g * xhat).mean((1, 2), keepdims=True)`
  means over the whole array
    Each row has its own two means, over its D numbers: axis=-1, with keepdims=True.
    `g.mean(-1, keepdims=True), (g * xhat).mean(-1, keepdims=True)` →
      `g.mean(None, keepdims=True), (g * xhat).mean(None, keepdims=True)`
  everything is normalised over the tokens' axis
    Mean, variance and both terms of dx go over the last axis.
    `mean(-1` → `mean(1`
  everything is normalised over tokens and numbers
    Mean, variance and both terms of dx go over the last axis.
    `mean(-1` → `mean((1, 2)`
  x is normalised over the tokens' axis
    Each row has its own mean and variance, over its D numbers.
    `x.mean(-1` → `x.mean(1`
    `centred).mean(-1` → `centred).mean(1`
  the sample variance
    The variance of a layer norm is the mean of (x − mean)²: divided by D, not by D − 1.
    `(centred * centred).mean(-1, keepdims=True)` → `x.var(-1, ddof=1, keepdims=True)`
  ε outside of the square root
    ε belongs to the variance, under the root: √(variance + ε).
    `((centred * centred).mean(-1, keepdims=True) + eps) ** -0.5` → `1 / (x.std(-1, keepdims=True) + eps)`
  ε is forgotten
    It was added to the variance in the forward.
    `eps = 0`
  x in place of x̂ in dweight
    weight was multiplied with the normalised x.
    `dy * xhat` → `dy * x`
  the broadcast weight and bias are not summed
    All rows share both, so their gradients are sums over all axes but the last.
    `.sum(rows)` → ``
  the broadcast weight and bias are summed over samples only
    All tokens of all samples share both: sum over all axes but the last.
    `sum(rows)` → `sum(0)`
  the gradients of weight and bias are means
    Both get the sum of the gradients of all rows; there was no 1/N in the forward.
    `sum(rows)` → `mean(rows)`
  weight stands in its own gradient
    y is linear in weight: its gradient does not depend on it.
    `dy * xhat` → `dy * xhat * weight`
""")
