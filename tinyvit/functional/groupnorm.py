"""Group normalisation, and the standardised weights that go with it."""

from typing import NamedTuple

from tinyvit.arrays import Array
from tinyvit.dispatch import backward_of, operation
from tinyvit.functional.batchnorm import check_channels, per_channel, sum_per_channel
from tinyvit.functional.windows import is_int


class GroupNormCache(NamedTuple):
    xhat: Array    # (B, C, …)  normalised input
    rstd: Array    # (B, G, 1)  1 / standard deviation
    weight: Array  # (C,)

    shape = property(lambda self: self.xhat.shape)


@operation(arrays="x weight bias")
def group_norm(x, weight, bias, num_groups, eps=1e-5):
    """Give every group of channels of each sample of `x` (B, C, …) mean 0 and variance 1, then scale and shift:

        μ = mean(x)   σ² = mean((x − μ)²)   x̂ = (x − μ) / √(σ² + ε)   y = x̂ · weight + bias

    weight and bias (C,). The means are over the C / num_groups channels of a group and their positions: no sample
    depends on another. One group is a layer norm of the whole sample. Raises ValueError if the shapes don't fit, or the
    groups don't divide the channels. Wu & He 2018, "Group normalization", eqs. 2–7.
    """
    check_channels("group_norm", x, weight, bias)
    check_groups(x, num_groups)
    groups = x.reshape(len(x), num_groups, -1)                                 # (B, G, C/G · …)
    centred = groups - groups.mean(-1, keepdims=True)
    rstd = ((centred * centred).mean(-1, keepdims=True) + eps) ** -0.5
    xhat = (centred * rstd).reshape(x.shape)
    return xhat * per_channel(weight, x) + per_channel(bias, x), GroupNormCache(xhat, rstd, weight)


@backward_of(group_norm, result=lambda cache: cache.shape, parameters=lambda cache: (cache.weight.shape,) * 2)
def group_norm_backward(dy, cache):
    """With g = dy · weight, dx = rstd (g − mean(g) − x̂ mean(g x̂)), the means over the group; dweight = Σ dy x̂;
    dbias = Σ dy. Returns (dx, dweight, dbias)."""
    xhat, rstd, weight = cache
    in_groups = *rstd.shape[:2], -1
    g = (dy * per_channel(weight, dy)).reshape(in_groups)                      # (B, G, C/G · …)
    normalised = xhat.reshape(in_groups)
    dx = rstd * (g - g.mean(-1, keepdims=True) - normalised * (g * normalised).mean(-1, keepdims=True))
    return dx.reshape(dy.shape), sum_per_channel(dy * xhat), sum_per_channel(dy)


class StandardizedCache(NamedTuple):
    what: Array   # (O, …)  standardised filters
    scale: Array  # (O, 1)  what the centred filters were multiplied with


@operation
def standardize_weight(weight, eps=1e-6):
    """Give every filter of `weight` (O, …) mean 0 and variance 1: ŵ = (w − μ) / √(σ² + ε).

    ε is inside the variance, as in the PyTorch versions of BiT. Raises ValueError for filters without numbers.
    Qiao et al. 2019, "Micro-batch training with batch-channel normalization and weight standardization", eq. 5.
    """
    centred = centred_filters("standardize_weight", weight)                    # (O, fan-in)
    scale = ((centred * centred).mean(-1, keepdims=True) + eps) ** -0.5
    what = (centred * scale).reshape(weight.shape)
    return what, StandardizedCache(what, scale)


@backward_of(
    standardize_weight, result=lambda cache: cache.what.shape, parameters=lambda cache: (cache.what.shape,)
)
def standardize_weight_backward(dy, cache):
    """dw = (dŵ − mean(dŵ) − ŵ mean(dŵ ŵ)) / √(σ² + ε), the means over a filter: a layer norm of each filter."""
    what, scale = cache
    g, filters = dy.reshape(len(scale), -1), what.reshape(len(scale), -1)      # (O, fan-in)
    dweight = scale * (g - g.mean(-1, keepdims=True) - filters * (g * filters).mean(-1, keepdims=True))
    return dweight.reshape(dy.shape)


class StandardizedOriginalCache(NamedTuple):
    what: Array   # (O, …)  standardised filters
    scale: Array  # (O, 1)  1 / (σ + ε)
    sigma: Array  # (O, 1)  standard deviation


@operation
def standardize_weight_original(weight, eps=1e-5):
    """Give every filter of `weight` (O, …) mean 0 and nearly standard deviation 1: ŵ = (w − μ) / (σ + ε).

    ε is added to the standard deviation, as in the code published with the papers of BiT and ViT. Raises ValueError for
    filters without numbers. Kolesnikov et al. 2020, "Big Transfer (BiT): general visual representation learning".
    """
    centred = centred_filters("standardize_weight_original", weight)           # (O, fan-in)
    sigma = (centred * centred).mean(-1, keepdims=True) ** 0.5
    scale = (sigma + eps) ** -1.0
    what = (centred * scale).reshape(weight.shape)
    return what, StandardizedOriginalCache(what, scale, sigma)


@backward_of(
    standardize_weight_original, result=lambda cache: cache.what.shape, parameters=lambda cache: (cache.what.shape,)
)
def standardize_weight_original_backward(dy, cache):
    """dw = (dŵ − mean(dŵ) − ŵ mean(dŵ ŵ) (σ + ε) / σ) / (σ + ε), the means over a filter.

    Where all numbers of a filter are equal, σ has no derivative: the last term, in which ŵ = 0, is then left out.
    """
    what, scale, sigma = cache
    g, filters = dy.reshape(len(scale), -1), what.reshape(len(scale), -1)      # (O, fan-in)
    pull = (g * filters).mean(-1, keepdims=True) / (sigma * scale + (sigma == 0))
    return (scale * (g - g.mean(-1, keepdims=True) - filters * pull)).reshape(dy.shape)


def check_groups(x, num_groups):
    """Raise ValueError unless the groups divide the channels of x (B, C, …)."""
    C = x.shape[1]
    if not is_int(num_groups) or num_groups < 1 or C % num_groups:
        raise ValueError(f"group_norm: expected groups that divide the {C} channels, got {num_groups!r}")


def centred_filters(name, weight):
    """The filters (O, …) as rows (O, fan-in), each less its mean; ValueError if there are no numbers in them."""
    if weight.ndim < 2 or not weight.size:
        raise ValueError(f"{name}: expected filters (O, …), not empty, got {weight.shape}")
    filters = weight.reshape(len(weight), -1)
    return filters - filters.mean(-1, keepdims=True)
