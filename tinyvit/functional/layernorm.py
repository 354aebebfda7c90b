"""Layer normalisation, and root mean square normalisation, which leaves the mean as it is."""

from typing import NamedTuple

from tinyvit.arrays import Array
from tinyvit.dispatch import backward_of, operation
from tinyvit.functional.sums import sum_rows


class LayerNormCache(NamedTuple):
    xhat: Array    # (..., D)  normalised input
    rstd: Array    # (..., 1)  1 / standard deviation
    weight: Array  # (D,)


def result_shape(cache):
    """The shape (..., D) of what was normalised; every kernel's cache begins with an array of it."""
    return cache[0].shape


def fits(x, weight, bias):
    """Whether these are x (..., D), weight (D,) and bias (D,), with D > 0."""
    return x.ndim > 0 and x.shape[-1] > 0 and weight.shape == bias.shape == x.shape[-1:]


@operation(arrays="x weight bias")
def layernorm(x, weight, bias, eps=1e-6):
    """Give every row of `x` (..., D) mean 0 and variance 1, then scale by `weight` (D,) and shift by `bias` (D,):

        μ = mean(x)   σ² = mean((x − μ)²)   x̂ = (x − μ) / √(σ² + ε)   y = x̂ · weight + bias

    Ba, Kiros & Hinton 2016, "Layer normalization", eqs. 3–4. Derived in notebooks/02.
    """
    if not fits(x, weight, bias):
        shapes = f"{x.shape}, {weight.shape} and {bias.shape}"
        raise ValueError(f"layernorm: expected x (..., D), weight (D,) and bias (D,) with D > 0, got {shapes}")
    centred = x - x.mean(-1, keepdims=True)
    # Two passes: E[x²] − E[x]² would cancel where the mean is large.
    rstd = ((centred * centred).mean(-1, keepdims=True) + eps) ** -0.5
    xhat = centred * rstd
    return xhat * weight + bias, LayerNormCache(xhat, rstd, weight)


@backward_of(layernorm, result=result_shape, parameters=lambda cache: (cache.weight.shape,) * 2)
def layernorm_backward(dy, cache):
    """With g = dy · weight, dx = rstd (g − mean(g) − x̂ mean(g x̂)); dweight = Σ dy x̂; dbias = Σ dy.

    The two means are the gradients through the row's mean and variance. Returns (dx, dweight, dbias).
    """
    xhat, rstd, weight = cache
    g = dy * weight
    dx = rstd * (g - g.mean(-1, keepdims=True) - xhat * (g * xhat).mean(-1, keepdims=True))
    return dx, sum_rows(dy * xhat), sum_rows(dy)


class RmsnormCache(NamedTuple):
    xhat: Array    # (..., D)  normalised input
    rrms: Array    # (..., 1)  1 / root mean square
    weight: Array  # (D,)


@operation(arrays="x weight")
def rmsnorm(x, weight, eps=1e-6):
    """Give every row of `x` (..., D) mean square 1, then scale by `weight` (D,):

        r = √(mean(x²) + ε)   x̂ = x / r   y = x̂ · weight

    It is `layernorm` without the mean and without the shift. Zhang & Sennrich 2019, "Root mean square layer
    normalization", eq. 4.
    """
    if not x.ndim or not x.shape[-1] or weight.shape != x.shape[-1:]:
        raise ValueError(f"rmsnorm: expected x (..., D) and weight (D,) with D > 0, got {x.shape} and {weight.shape}")
    rrms = ((x * x).mean(-1, keepdims=True) + eps) ** -0.5
    xhat = x * rrms
    return xhat * weight, RmsnormCache(xhat, rrms, weight)


@backward_of(rmsnorm, result=lambda cache: cache.xhat.shape, parameters=lambda cache: [cache.weight.shape])
def rmsnorm_backward(dy, cache):
    """With g = dy · weight, dx = (g − x̂ mean(g x̂)) / r; dweight = Σ dy x̂. Returns (dx, dweight).

    This is `layernorm_backward` without mean(g), as no mean was subtracted.
    """
    xhat, rrms, weight = cache
    g = dy * weight
    dx = rrms * (g - xhat * (g * xhat).mean(-1, keepdims=True))
    return dx, sum_rows(dy * xhat)
