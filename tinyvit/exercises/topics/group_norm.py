"""Group normalisation and standardised weights, and their gradients."""

from tinyvit.exercises.exercise import exercise, lesson, require_fit, visible_eps


def inputs(random, B, C, H, W, G):
    require_fit(C % G == 0)
    weight, bias = 1 + random.standard_normal(C), random.standard_normal(C)
    return 0.5 + 2 * random.standard_normal((B, C, H, W)), weight, bias, G, visible_eps(random)


def filters(random, O, C, P, Q):  # noqa: E741
    return 0.3 + random.standard_normal((O, C, P, Q)), visible_eps(random)


@exercise(inputs, ({"B": 2, "C": 6, "H": 2, "W": 5, "G": 2}, {"B": 1, "C": 9, "H": 3, "W": 2, "G": 3}))
def group_norm(x, weight, bias, num_groups, eps):
    """Give every group of C/G channels that follow one another, of each sample, mean 0 and variance 1 (ε is added to
    the variance), scale each channel by weight and shift it by bias.

      x           (B, C, H, W)
      weight      (C,)
      bias        (C,)
      num_groups  G, which divides C
      eps         ε, a number

    returns
      y  (B, C, H, W)
    """
    groups = x.reshape(len(x), num_groups, -1)                                 # (B, G, C/G · H · W)
    centred = groups - groups.mean(-1, keepdims=True)
    variance = (centred * centred).mean(-1, keepdims=True)
    xhat = centred * (variance + eps) ** -0.5
    return xhat.reshape(x.shape) * weight[:, None, None] + bias[:, None, None]


lesson(group_norm, """
Package: tinyvit.functional.groupnorm.group_norm

Hints:
  How many numbers share a mean, and which axes do they lie along once the channels are split in groups?
  (B, C, H, W) → (B, G, C/G · H · W), a layer norm of each row, back again; then weight and bias by channel.
  x̂ = (x − μ) / √(σ² + ε) with μ and σ² over a group of a sample; y = γ x̂ + β.

Mistakes:
  every G-th channel in a group
    The channels of a group follow one another: reshape to (B, G, C/G · H · W), without a transpose.
    `num_groups, -1` → `-1, num_groups, x[0, 0].size`
    `mean(-1` → `mean((1, 3)`
  the statistics are over the batch, too
    No sample depends on another.
    `mean(-1` → `mean((0, 2)`
  the statistics are of the whole sample
    Each group has its own mean and variance.
    `mean(-1` → `mean((1, 2)`
  the sample variance
    The variance is divided by n, not by n − 1.
    `(centred * centred).mean(` → `groups.var(ddof=1, axis=`
  ε outside of the square root
    ε belongs to the variance, under the root: √(variance + ε).
    `(variance + eps) ** -0.5` → `1 / (variance**0.5 + eps)`
  divided by the variance
    Divide by the standard deviation, the variance's square root.
    `-0.5` → `-1`
  each channel by itself
    The channels of a group share one mean and one variance.
    `num_groups = len(weight)`
  ε is forgotten
    Without ε a group of equal numbers divides by zero.
    `eps = 0`
  weight is forgotten
    Scale the normalised channels by weight.
    ` * weight[:, None, None]` → ``
  bias is forgotten
    Add the bias after scaling.
    ` + bias[:, None, None]` → ``
""")


@exercise(forward=group_norm)
def group_norm_backward(dy, x, weight, num_groups, eps):
    """The gradients of the group norm y = x̂ · weight + bias, where x̂ = (x − mean) / √(variance + ε) group by group.

      dy          (B, C, H, W), the gradient of y
      x           (B, C, H, W)
      weight      (C,)
      num_groups  G, which divides C
      eps         ε, a number

    returns
      dx       (B, C, H, W)
      dweight  (C,)
      dbias    (C,)
    """
    groups = x.reshape(len(x), num_groups, -1)
    centred = groups - groups.mean(-1, keepdims=True)
    variance = (centred * centred).mean(-1, keepdims=True)
    rstd = (variance + eps) ** -0.5
    xhat = centred * rstd
    g = (dy * weight[:, None, None]).reshape(groups.shape)
    mean_g, mean_gxhat = g.mean(-1, keepdims=True), (g * xhat).mean(-1, keepdims=True)
    dx = rstd * (g - mean_g - xhat * mean_gxhat)
    return dx.reshape(x.shape), (dy * xhat.reshape(x.shape)).sum((0, 2, 3)), dy.sum((0, 2, 3))


lesson(group_norm_backward, """
Package: tinyvit.functional.groupnorm.group_norm_backward

Hints:
  The channels of a group have different weights. Is the mean that goes back of dy, or of dy · weight?
  With g = dy · weight: dx = r · (g − something − x̂ · something), both the same in the whole group.
  dx = r (g − mean(g) − x̂ mean(g x̂)), the means over a group; dγ = Σ dy x̂, dβ = Σ dy over B, H and W.

Mistakes:
  mean and variance taken as constants
    Each x moves the mean and the variance of its group, and through them all others.
    ` - mean_g - xhat * mean_gxhat` → ``
  the path through the mean is missing
    Each x is 1/n of its group's mean, which is subtracted.
    ` - mean_g ` → ` `
  the path through the variance is missing
    A larger x̂ also makes the standard deviation larger.
    ` - xhat * mean_gxhat` → ``
  the means in dx are of the whole sample
    They are of each group, as in the forward.
    `g.mean(-1` → `g.mean((1, 2)`
    `xhat).mean(-1` → `xhat).mean((1, 2)`
  dx is not divided by the standard deviation
    x̂ is x, less its mean, times 1/σ: so is dx.
    `dx = rstd * ` → `dx = `
  dx is divided by the variance
    1/σ stands in dx once.
    `dx = rstd` → `dx = rstd**2`
  weight is multiplied last
    The channels of a group have different weights: the means in dx are of dy · weight, so weight comes first.
    `dy * weight[:, None, None]` → `dy`
    `dx.reshape(x.shape)` → `weight[:, None, None] * dx.reshape(x.shape)`
  dweight with x in place of x̂
    weight multiplies the normalised x.
    `dy * xhat.reshape(x.shape)` → `dy * x`
  dweight without x̂
    weight multiplies x̂, so its gradient is the sum of dy times x̂.
    `dy * xhat.reshape(x.shape)` → `dy`
  the broadcast weight and bias are summed over the samples only
    All places share them: (0, 2, 3).
    `sum((0, 2, 3))` → `sum(0)`
  the broadcast weight and bias are summed over the places only
    All samples share them: (0, 2, 3).
    `sum((0, 2, 3))` → `sum((2, 3))`
""")


@exercise(filters, ({"O": 4, "C": 3, "P": 2, "Q": 5}, {"O": 2, "C": 5, "P": 3, "Q": 3}))
def standardize_weight(weight, eps):
    """Give every filter mean 0 and variance 1 over its C·P·Q numbers; ε is added to the variance.

      weight  (O, C, P, Q)
      eps     ε, a number

    returns
      standardized  (O, C, P, Q)
    """
    axes = 1, 2, 3
    centred = weight - weight.mean(axes, keepdims=True)
    variance = (centred * centred).mean(axes, keepdims=True)
    return centred * (variance + eps) ** -0.5


lesson(standardize_weight, """
Package: tinyvit.functional.groupnorm.standardize_weight

Hints:
  What is it that each filter gets a mean and a variance of its own for: which axes are one filter?
  Centre over the axes 1, 2 and 3, then divide by the root of the variance plus ε.
  ŵ = (w − μ) / √(σ² + ε), with μ and σ² over the C·P·Q numbers of a filter.

Mistakes:
  each channel of a filter by itself
    One mean and one variance for each filter, over its axes 1, 2 and 3.
    `1, 2, 3` → `2, 3`
  mean and variance over the filters
    One mean and one variance for each filter, over its axes 1, 2 and 3.
    `1, 2, 3` → `0`
  mean and variance of all filters together
    One mean and one variance for each filter, over its axes 1, 2 and 3.
    `1, 2, 3` → `None`
  the sample variance
    The variance is divided by n = C·P·Q, not by n − 1.
    `(centred * centred).mean(axes, keepdims=True)` → `weight.var(axes, ddof=1, keepdims=True)`
  ε outside of the square root
    That is the convention of BiT's published code. Here ε belongs to the variance: √(variance + ε).
    `(variance + eps) ** -0.5` → `1 / (variance**0.5 + eps)`
  divided by the variance
    Divide by the standard deviation, the variance's square root.
    `-0.5` → `-1`
  the mean is not subtracted
    Each filter's mean becomes 0.
    `return centred` → `return weight`
  ε is forgotten
    Without ε a filter of equal numbers divides by zero.
    `eps = 0`
""")


@exercise(forward=standardize_weight)
def standardize_weight_backward(dy, weight, eps):
    """The gradient of filters that were standardised: ŵ = (w − mean) / √(variance + ε), filter by filter.

      dy      (O, C, P, Q), the gradient of ŵ
      weight  w, (O, C, P, Q)
      eps     ε, a number

    returns
      dweight  (O, C, P, Q)
    """
    axes = 1, 2, 3
    centred = weight - weight.mean(axes, keepdims=True)
    variance = (centred * centred).mean(axes, keepdims=True)
    rstd = (variance + eps) ** -0.5
    what = centred * rstd
    mean_dy, mean_dywhat = dy.mean(axes, keepdims=True), (dy * what).mean(axes, keepdims=True)
    return rstd * (dy - mean_dy - what * mean_dywhat)


lesson(standardize_weight_backward, """
Package: tinyvit.functional.groupnorm.standardize_weight_backward

Hints:
  Which other layer does the same to rows of numbers?
  That of a layer norm without weight and bias, with a filter as the row.
  dw = r (dŵ − mean(dŵ) − ŵ mean(dŵ ŵ)), the means over the axes 1, 2 and 3.

Mistakes:
  mean and variance taken as constants
    Each number moves the mean and the variance of its filter, and through them all others.
    ` - mean_dy - what * mean_dywhat` → ``
  the path through the mean is missing
    Each number is 1/n of its filter's mean, which is subtracted.
    ` - mean_dy ` → ` `
  the path through the variance is missing
    A larger ŵ also makes the standard deviation larger.
    ` - what * mean_dywhat` → ``
  the means are of each channel
    The forward's means are of each filter: the axes 1, 2 and 3.
    `dy.mean(axes, keepdims=True), (dy * what).mean(axes, keepdims=True)` →
      `dy.mean((2, 3), keepdims=True), (dy * what).mean((2, 3), keepdims=True)`
  not divided by the standard deviation
    ŵ is w, less its mean, times 1/σ: so is the gradient.
    `return rstd * ` → `return `
  divided by the variance
    1/σ stands in front once.
    `return rstd` → `return rstd**2`
  the sample variance
    The forward's variance is divided by n, not by n − 1.
    `(centred * centred).mean(axes, keepdims=True)` → `weight.var(axes, ddof=1, keepdims=True)`
""")
