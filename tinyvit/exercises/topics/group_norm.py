"""Group normalisation and standardised weights, and their gradients."""

from tinyvit.exercises.exercise import exercise, visible_eps


def inputs(random, B, G, g, H, W):
    C = G * g
    weight, bias = 1 + random.standard_normal(C), random.standard_normal(C)
    return 0.5 + 2 * random.standard_normal((B, C, H, W)), weight, bias, G, visible_eps(random)


def filters(random, O, C, P, Q):  # noqa: E741
    return 0.3 + random.standard_normal((O, C, P, Q)), visible_eps(random)


@exercise(inputs, "B G g H W")
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


@exercise(filters, "O C P Q")
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
