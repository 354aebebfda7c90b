"""Batch normalisation in training, its gradients and its running statistics."""

from tinyvit.exercises.exercise import exercise, visible_eps


def inputs(random, B, C, H, W):
    weight, bias = 1 + random.standard_normal(C), random.standard_normal(C)
    return 0.5 + 2 * random.standard_normal((B, C, H, W)), weight, bias, visible_eps(random)


def running_inputs(random, B, C, H, W):
    x, mean, _, momentum = inputs(random, B, C, H, W)
    return x, mean, random.uniform(0.5, 2, C), momentum



@exercise(inputs, "B C H W")
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


@exercise(running_inputs, "B C H W momentum:0,1")
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
