"""Batch normalisation, in training and in evaluation."""

from math import prod
from typing import Any, NamedTuple

from tinyvit.arrays import Array
from tinyvit.dispatch import backward_of, operation
from tinyvit.functional.sums import sum_first


class BatchNormCache(NamedTuple):
    xhat: Array      # (B, C, …)  normalised input
    rstd: Array      # (C,)  1 / standard deviation
    weight: Array    # (C,)
    mean: Array      # (C,)  of the batch
    variance: Array  # (C,)  of the batch; unbiased, as running statistics keep it
    count: int       # values of a channel in the batch
    join: Any        # how the parts of the batch are joined, or None

    shape = property(lambda self: self.xhat.shape)


@operation(arrays="x weight bias")
def batch_norm(x, weight, bias, eps=1e-5, join=None):
    """Give every channel of `x` (B, C, …) mean 0 and variance 1 over the batch, then scale and shift it:

        μ = mean(x)   σ² = mean((x − μ)²)   x̂ = (x − μ) / √(σ² + ε)   y = x̂ · weight + bias

    weight and bias (C,). The means are over the samples and their positions.

    join   how the mean and variance of the whole batch are found where `x` is a part of it: a function that takes a
           value of this part and returns those of all parts, in their order; None: `x` is the whole batch

    The cache has the `mean` of the batch and its unbiased `variance`, for running statistics. Raises ValueError if the
    shapes don't fit, and for a batch of a single value per channel, whose x̂ would be 0 whatever `x` is.
    Ioffe & Szegedy 2015, "Batch normalization: accelerating deep network training by reducing internal covariate
    shift", algorithm 1.
    """
    check_channels("batch_norm", x, weight, bias)
    mean, squares, count = join_moments((*moments(x), x.size // x.shape[1]), join)
    check_count(x, count)
    rstd = (squares * (1 / count) + eps) ** -0.5
    xhat = (x - per_channel(mean, x)) * per_channel(rstd, x)
    y = xhat * per_channel(weight, x) + per_channel(bias, x)
    return y, BatchNormCache(xhat, rstd, weight, mean, squares * (1 / (count - 1)), count, join)


@backward_of(batch_norm, result=lambda cache: cache.shape, parameters=lambda cache: (cache.weight.shape,) * 2)
def batch_norm_backward(dy, cache):
    """dx = weight · rstd (dy − mean(dy) − x̂ mean(dy x̂)); dweight = Σ dy x̂; dbias = Σ dy.

    The two means are the gradients through the mean and variance of the whole batch: parts of it are joined as in the
    forward. Returns (dx, dweight, dbias), the last two of this part alone.
    """
    xhat, rstd, weight, _, _, count, join = cache
    dweight, dbias = sum_per_channel(dy * xhat), sum_per_channel(dy)
    product, total = sum_of_parts((dweight, dbias), join)
    g = dy - per_channel(total * (1 / count), dy) - xhat * per_channel(product * (1 / count), dy)
    return g * per_channel(weight * rstd, dy), dweight, dbias


class RunningNormCache(NamedTuple):
    xhat: Array    # (B, C, …)  normalised input
    rstd: Array    # (C,)  1 / standard deviation
    weight: Array  # (C,)

    shape = property(lambda self: self.xhat.shape)


@operation(arrays="x weight bias mean variance")
def batch_norm_running(x, weight, bias, mean, variance, eps=1e-5):
    """Normalise every channel of `x` (B, C, …) with a given mean and variance, as batch normalisation in evaluation:

        y = (x − mean) / √(variance + ε) · weight + bias

    weight, bias, mean and variance (C,); the last two are running statistics, which get no gradient. Raises ValueError
    if the shapes don't fit. Ioffe & Szegedy 2015, algorithm 2.
    """
    check_channels("batch_norm_running", x, weight, bias)
    for name, statistic in (("mean", mean), ("variance", variance)):
        if statistic.shape != weight.shape:
            raise ValueError(f"batch_norm_running: expected {name} {weight.shape}, got {statistic.shape}")
    rstd = (variance.astype(x.dtype) + eps) ** -0.5
    xhat = (x - per_channel(mean.astype(x.dtype), x)) * per_channel(rstd, x)
    return xhat * per_channel(weight, x) + per_channel(bias, x), RunningNormCache(xhat, rstd, weight)


@backward_of(
    batch_norm_running, result=lambda cache: cache.shape, parameters=lambda cache: (cache.weight.shape,) * 2
)
def batch_norm_running_backward(dy, cache):
    """dx = weight · rstd · dy; dweight = Σ dy x̂; dbias = Σ dy. Returns (dx, dweight, dbias)."""
    xhat, rstd, weight = cache
    return dy * per_channel(weight * rstd, dy), sum_per_channel(dy * xhat), sum_per_channel(dy)


def moments(x):
    """The mean of every channel of x (B, C, …), and its sum of squared differences from it: (C,) each.

    Two passes: E[x²] − E[x]² would cancel where the mean is large.
    """
    mean = sum_per_channel(x) * (1 / (x.size // x.shape[1]))
    centred = x - per_channel(mean, x)
    return mean, sum_per_channel(centred * centred)


def join_moments(own, join):
    """The moments of a whole batch, (mean, sum of squared differences, count), from those of one of its parts.

    Chan, Golub & LeVeque 1979, "Updating formulae and a pairwise algorithm for computing sample variances".
    """
    if join is None:
        return own
    parts = join(own)
    count = sum(n for _, _, n in parts)
    mean = sum(m * (n / count) for m, _, n in parts)
    return mean, sum(squares + n * (m - mean) * (m - mean) for m, squares, n in parts), count


def sum_of_parts(own, join):
    """The sums over a whole batch from those over one of its parts, a tuple of arrays."""
    return own if join is None else tuple(sum(sums) for sums in zip(*join(own)))


def check_count(x, count):
    """Raise ValueError for a whole batch of `count` values per channel, of which x is a part, if that is one."""
    if count < 2:
        raise ValueError(
            f"batch_norm: expected more than one value per channel in training, got x {x.shape}; take a larger batch, "
            "or normalise with running statistics"
        )


def sum_per_channel(x):
    """The sum of x (B, C, …) over all but the channels: (C,)."""
    return sum_first(x.reshape(*x.shape[:2], prod(x.shape[2:])).sum(-1))


def per_channel(values, x):
    """Values (C,) in a shape that broadcasts to x (B, C, …)."""
    return values.reshape(-1, *(1,) * (x.ndim - 2))


def check_channels(name, x, weight, bias):
    """Raise ValueError unless these are x (B, C, …) with at least one number, weight (C,) and bias (C,)."""
    if x.ndim < 2 or not x.size or not weight.shape == bias.shape == x.shape[1:2]:
        raise ValueError(
            f"{name}: expected x (B, C, …), not empty, weight (C,) and bias (C,), got {x.shape}, {weight.shape} and "
            f"{bias.shape}"
        )
