"""Batch normalisation in training, its gradients and its running statistics."""

from tinyvit.exercises.exercise import exercise, lesson, visible_eps


def inputs(random, B, C, H, W):
    weight, bias = 1 + random.standard_normal(C), random.standard_normal(C)
    return 0.5 + 2 * random.standard_normal((B, C, H, W)), weight, bias, visible_eps(random)


def running_inputs(random, B, C, H, W):
    x, mean, _, momentum = inputs(random, B, C, H, W)
    return x, mean, random.uniform(0.5, 2, C), momentum


SIZES = {"B": 3, "C": 4, "H": 2, "W": 5}, {"B": 1, "C": 2, "H": 4, "W": 3}


@exercise(inputs, SIZES)
def batch_norm(x, weight, bias, eps):
    """Give every channel of x mean 0 and variance 1 over the batch, its samples and places (ε is added to the
    variance), scale it by weight and shift it by bias.

      x       (B, C, H, W)
      weight  (C,)
      bias    (C,)
      eps     ε, a number

    returns
      y  (B, C, H, W)
    """
    axes = 0, 2, 3
    centred = x - x.mean(axes, keepdims=True)
    variance = (centred * centred).mean(axes, keepdims=True)
    xhat = centred * (variance + eps) ** -0.5
    return xhat * weight[:, None, None] + bias[:, None, None]


lesson(batch_norm, """
Package: tinyvit.functional.batchnorm.batch_norm

Hints:
  A filter is the same for all samples and at all places. Over which axes is the mean of what it makes?
  Centre and scale each channel of (B, C, H, W); weight and bias need two more axes to line up with C.
  x̂ = (x − μ) / √(σ² + ε), y = γ x̂ + β, with μ and σ² over B, H and W: σ² = mean((x − μ)²).

Mistakes:
  the sample variance
    A batch norm divides by √(variance + ε) with the mean of (x − mean)²: divided by n, not by n − 1, which only the
    running variance is.
    `(centred * centred).mean(axes, keepdims=True)` → `x.var(axes, ddof=1, keepdims=True)`
  ε outside of the square root
    ε belongs to the variance, under the root.
    `(variance + eps) ** -0.5` → `1 / (variance**0.5 + eps)`
  divided by the variance
    Divide by the standard deviation, the variance's square root.
    `-0.5` → `-1`
  mean and variance over the samples only
    A channel's filter is the same at all places, and so is its mean: over samples and places, axes (0, 2, 3).
    `0, 2, 3` → `0`
  mean and variance of each sample alone
    That is an instance norm. A batch norm's mean is over the samples too, axes (0, 2, 3).
    `0, 2, 3` → `2, 3`
  a layer norm
    A batch norm has a mean for each channel, over the axes (0, 2, 3).
    `0, 2, 3` → `1, 2, 3`
  mean and variance over the channels
    Every channel has its own: over the axes (0, 2, 3).
    `0, 2, 3` → `1`
  mean and variance over the whole array
    Every channel has its own: axes (0, 2, 3).
    `0, 2, 3` → `None`
  the mean is not subtracted
    The channels of the result don't have mean 0.
    `xhat = centred` → `xhat = x`
  ε is forgotten
    A channel that is dead, the same everywhere, would divide by zero.
    `eps = 0`
  weight is forgotten
    Scale the normalised channels by weight.
    ` * weight[:, None, None]` → ``
  bias is forgotten
    Add the bias after scaling.
    ` + bias[:, None, None]` → ``
""")


@exercise(forward=batch_norm)
def batch_norm_backward(dy, x, weight, eps):
    """The gradients of the batch norm y = x̂ · weight + bias, where x̂ = (x − mean) / √(variance + ε) channel by
    channel, with the mean and variance over samples and places.

      dy      (B, C, H, W), the gradient of y
      x       (B, C, H, W)
      weight  (C,)
      eps     ε, a number

    returns
      dx       (B, C, H, W)
      dweight  (C,)
      dbias    (C,)
    """
    axes = 0, 2, 3
    centred = x - x.mean(axes, keepdims=True)
    variance = (centred * centred).mean(axes, keepdims=True)
    rstd = (variance + eps) ** -0.5
    xhat = centred * rstd
    mean_dy, mean_dyxhat = dy.mean(axes, keepdims=True), (dy * xhat).mean(axes, keepdims=True)
    dx = weight[:, None, None] * rstd * (dy - mean_dy - xhat * mean_dyxhat)
    return dx, (dy * xhat).sum(axes), dy.sum(axes)


lesson(batch_norm_backward, """
Package: tinyvit.functional.batchnorm.batch_norm_backward

Hints:
  In which three ways does one pixel change the results of its channel?
  dx = γ r · (dy − something − x̂ · something), both the same in the whole channel.
  dx = γ r (dy − mean(dy) − x̂ mean(dy x̂)), the means over B, H and W; dγ = Σ dy x̂, dβ = Σ dy.

Mistakes:
  mean and variance taken as constants
    That is the gradient in evaluation. In training each x moves the mean and the variance of its channel, and through
    them all others.
    ` - mean_dy - xhat * mean_dyxhat` → ``
  the path through the mean is missing
    Each x is 1/n of its channel's mean, which is subtracted.
    ` - mean_dy ` → ` `
  the path through the variance is missing
    A larger x̂ also makes the standard deviation larger.
    ` - xhat * mean_dyxhat` → ``
  the means in dx are over the samples only
    The forward's means are over samples and places: (0, 2, 3).
    `dy.mean(axes, keepdims=True), (dy * xhat).mean(axes, keepdims=True)` →
      `dy.mean(0, keepdims=True), (dy * xhat).mean(0, keepdims=True)`
  the means in dx are of each sample alone
    The forward's means are over the samples too: (0, 2, 3).
    `dy.mean(axes, keepdims=True), (dy * xhat).mean(axes, keepdims=True)` →
      `dy.mean((2, 3), keepdims=True), (dy * xhat).mean((2, 3), keepdims=True)`
  the sample variance
    The forward's variance is divided by n, not by n − 1.
    `(centred * centred).mean(axes, keepdims=True)` → `x.var(axes, ddof=1, keepdims=True)`
  dx is not divided by the standard deviation
    x̂ is x, less its mean, times 1/σ: so is dx.
    ` * rstd * (` → ` * (`
  dx is divided by the variance
    1/σ stands in dx once.
    ` * rstd * (` → ` * rstd**2 * (`
  dx without weight
    y is x̂ times weight, so the gradient of x̂ is dy times weight.
    `weight[:, None, None] * ` → ``
  dweight with x in place of x̂
    weight multiplies the normalised x.
    `(dy * xhat).sum` → `(dy * x).sum`
  dweight with x − mean in place of x̂
    weight multiplies (x − mean) / √(variance + ε).
    `(dy * xhat).sum` → `(dy * centred).sum`
  dweight without x̂
    weight multiplies x̂, so its gradient is the sum of dy times x̂.
    `(dy * xhat).sum` → `dy.sum`
  the broadcast weight and bias are summed over the samples only
    All places share them: (0, 2, 3).
    `sum(axes)` → `sum(0)`
  the broadcast weight and bias are summed over the places only
    All samples share them: (0, 2, 3).
    `sum(axes)` → `sum((2, 3))`
  the gradients of weight and bias are means
    They get the sum over all that used them; the 1/n stands in dx only.
    `sum(axes)` → `mean(axes)`
""")


@exercise(running_inputs, (SIZES[0], {"B": 2, "C": 1, "H": 4, "W": 3}))
def running_statistics(x, running_mean, running_variance, momentum):
    """Move the running mean and variance of a batch norm by `momentum` towards those of the batch x, of which the
    variance is unbiased: divided by n − 1, where n = B·H·W.

      x                 (B, C, H, W)
      running_mean      (C,), before the step
      running_variance  (C,), before the step
      momentum          a number from 0 to 1, the share of the new one

    returns
      running_mean      (C,), after it
      running_variance  (C,), after it
    """
    mean, variance = x.mean((0, 2, 3)), x.var((0, 2, 3), ddof=1)
    return (1 - momentum) * running_mean + momentum * mean, (1 - momentum) * running_variance + momentum * variance


lesson(running_statistics, """
Package: tinyvit.functional.batchnorm.batch_norm

Hints:
  With a momentum of 0.1, how much of the old mean is left after one step?
  old times (1 − momentum) plus new times momentum, for the mean and for the variance.
  m ← (1 − α) m + α μ, v ← (1 − α) v + α σ² n / (n − 1), with n = B·H·W and α the momentum.

Mistakes:
  the biased variance
    The running variance is divided by n − 1: x.var(axes, ddof=1).
    `ddof=1` → `ddof=0`
  momentum and 1 − momentum are exchanged
    Unlike an optimizer's momentum, it is the share of the new one: running + momentum · (new − running).
    `momentum = 1 - momentum`
  standard deviations in place of variances
    The variance is kept, without a root.
    `* variance` → `* variance**0.5`
  the statistics of the batch alone
    Of the batch's only the share `momentum` counts.
    `momentum = 1`
  the old statistics fade away too little
    The old ones count 1 − momentum, not 1.
    `(1 - momentum) * ` → ``
""")
