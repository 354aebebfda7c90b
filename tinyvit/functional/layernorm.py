"""Layer normalisation."""

from typing import NamedTuple

from tinyvit.backend import Array
from tinyvit.functional.dispatch import backward_of, operation
from tinyvit.functional.sums import sum_rows


class LayerNormCache(NamedTuple):
    xhat: Array    # (..., D)  normalised input
    rstd: Array    # (..., 1)  1 / standard deviation
    weight: Array  # (D,)


@operation
def layernorm(x, weight, bias, eps=1e-6):
    """Give every row of `x` (..., D) mean 0 and variance 1, then scale by `weight` (D,) and shift by `bias` (D,):

        μ = mean(x)   σ² = mean((x − μ)²)   x̂ = (x − μ) / √(σ² + ε)   y = x̂ · weight + bias

    Ba, Kiros & Hinton 2016, "Layer normalization", eqs. 3–4. Derived in notebooks/02.
    """
    if not weight.shape == bias.shape == x.shape[-1:]:
        raise ValueError(f"layernorm: expected weight and bias {x.shape[-1:]}, got {weight.shape} and {bias.shape}")
    centred = x - x.mean(-1, keepdims=True)
    # Two passes: E[x²] − E[x]² would cancel where the mean is large.
    rstd = ((centred * centred).mean(-1, keepdims=True) + eps) ** -0.5
    xhat = centred * rstd
    return xhat * weight + bias, LayerNormCache(xhat, rstd, weight)


@backward_of(layernorm, inputs=1)
def layernorm_backward(dy, cache):
    """With g = dy · weight, dx = rstd (g − mean(g) − x̂ mean(g x̂)); dweight = Σ dy x̂; dbias = Σ dy.

    The two means are what the row's own mean and variance take back. Returns (dx, dweight, dbias).
    """
    xhat, rstd, weight = cache
    g = dy * weight
    dx = rstd * (g - g.mean(-1, keepdims=True) - xhat * (g * xhat).mean(-1, keepdims=True))
    return dx, sum_rows(dy * xhat), sum_rows(dy)
