"""The loss of a learned variance: how many bits per number the steps back cost."""

from math import log, pi
from typing import NamedTuple

import numpy as np

from tinyvit.arrays import Array, array_module
from tinyvit.backend import erf
from tinyvit.dispatch import backward_of, operation

MIN_PROBABILITY = 1e-12  # a less likely pixel counts as this likely, and gets no gradient
MAX_LOG_VARIANCE = 40.0  # above its lower limit: beyond it counts as this, and gets no gradient


class VariationalBoundCache(NamedTuple):
    slope: Array  # of each number's bits by its logarithm of the variance
    share: Array  # (B, 1, …)  of that by x


@operation(any_dtype="gap least most first half ends")
def variational_bound(x, gap, least, most, first, half, ends):
    """The mean over all numbers of the bits by which a step back with a learned variance is off, a scalar.

    The logarithm of the variance lies between two limits, log σ² = least + (x + 1)/2 (most − least). A step costs the
    divergence of two normal distributions, whose means are `gap` apart and whose variances are exp(least) and σ²; the
    one to the image itself costs −log of the probability that its distribution gives to a pixel's level:

        ½ (log σ² − least − 1 + (exp(least) + gap²) / σ²)      Φ((gap + half) / σ) − Φ((gap − half) / σ)

    x            (B, …), what the model says of the variance
    gap          (B, …), the mean that is right less the model's, which is taken as it is: it gets no gradient
    least, most  (B,), log β̃ and log β
    first        (B,) bools: whether it is the step to the image itself
    half         half of the distance between two levels of a pixel, a float or an array that broadcasts
    ends         (B, …) bools (darkest, brightest): a pixel at an end of the levels has all that lies beyond it

    Nichol & Dhariwal 2021, "Improved denoising diffusion probabilistic models", eq. 15; Ho et al. 2020, eq. 13.
    Raises ValueError if the shapes don't fit.
    """
    xp, dtype = array_module(x), x.dtype
    if gap.shape != x.shape or any(limit.shape != x.shape[:1] for limit in (least, most, first)):
        raise ValueError(
            f"variational_bound: expected x and gap (B, …) and limits (B,), got {x.shape}, {gap.shape}, {least.shape}, "
            f"{most.shape} and {first.shape}"
        )
    per_sample = (len(x), *[1] * (x.ndim - 1))
    # In double precision: float32 may not show the difference of two probabilities, nor that of the terms of a step.
    x, gap, least, most = (z.astype(xp.result_type(z, np.float64), copy=False) for z in (x, gap, least, most))
    least, most, first = (z.reshape(per_sample) for z in (least, most, first))
    share = 0.5 * (most - least)
    beyond = (x + 1) * share
    inside = (beyond.real > -MAX_LOG_VARIANCE) & (beyond.real < MAX_LOG_VARIANCE)
    log_variance = least + xp.where(inside, beyond, xp.clip(beyond.real, -MAX_LOG_VARIANCE, MAX_LOG_VARIANCE))

    ratio = (xp.exp(least) + gap * gap) * xp.exp(-log_variance)
    divergence, slope = 0.5 * (log_variance - least - 1 + ratio), 0.5 * (1 - ratio)

    scale, (darkest, brightest) = xp.exp(-0.5 * log_variance), ends
    above, below = scale * (gap + half), scale * (gap - half)
    upper, lower = xp.where(brightest, 1, normal_cdf(above)), xp.where(darkest, 0, normal_cdf(below))
    likely = (upper - lower).real > MIN_PROBABILITY
    probability = xp.where(likely, upper - lower, MIN_PROBABILITY)
    moved = xp.where(brightest, 0, above * density(above)) - xp.where(darkest, 0, below * density(below))

    loss = xp.where(first, -xp.log(probability), divergence)
    slope = xp.where(first, xp.where(likely, 0.5 * moved / probability, 0), slope)
    slope, share = (z.astype(dtype, copy=False) for z in (xp.where(inside, slope, 0), share))
    return (loss.sum() / (x.size * log(2))).astype(dtype), VariationalBoundCache(slope, share)


@backward_of(variational_bound, result=lambda cache: ())
def variational_bound_backward(dy, cache):
    """dx = dy · ½ (most − least) / (n log 2) · the slope by log σ²: ½ (1 − (exp(least) + gap²) / σ²), or for the first
    step ½ (a φ(a) − b φ(b)) / (Φ(a) − Φ(b)) with a, b = (gap ± half) / σ."""
    slope, share = cache
    return slope * (share * (dy * (1 / (slope.size * log(2)))))


def normal_cdf(x):
    """Φ(x) = ½ (1 + erf(x / √2))."""
    return 0.5 * (1 + erf(x * 2**-0.5))


def density(x):
    """φ(x) = exp(−x²/2) / √(2π)."""
    return array_module(x).exp(-0.5 * x * x) * (2 * pi) ** -0.5
