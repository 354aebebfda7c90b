"""GELU, the exact function, its approximation by a tanh, and the one by a logistic function."""

from math import pi
from typing import NamedTuple

from tinyvit.arrays import Array, array_module
from tinyvit.backend import erf
from tinyvit.dispatch import backward_of, operation
from tinyvit.functional.sigmoid import logistic

SQRT_HALF = 0.5**0.5
SQRT_2_OVER_PI = (2 / pi) ** 0.5
INV_SQRT_2PI = (2 * pi) ** -0.5
QUICK = 1.702  # the steepness in the form by a logistic function
CUBIC = 0.044715  # the coefficient of x³ in the tanh form (Hendrycks & Gimpel 2016, section 2)


class GeluCache(NamedTuple):
    x: Array    # (...)
    cdf: Array  # (...)  Φ(x)


@operation
def gelu(x):
    """y = x Φ(x), where Φ(x) = (1 + erf(x/√2)) / 2 is the standard normal's distribution function.

    Hendrycks & Gimpel 2016, "Gaussian error linear units". Derived in notebooks/04.
    """
    cdf = 0.5 * (1 + erf(x * SQRT_HALF))
    return x * cdf, GeluCache(x, cdf)


@backward_of(gelu, result=lambda cache: cache.x.shape)
def gelu_backward(dy, cache):
    """dx = dy (Φ(x) + x φ(x)), where φ(x) = exp(−x²/2) / √(2π) is Φ's derivative."""
    x, cdf = cache
    xp = array_module(x)
    pdf = xp.exp(-0.5 * x * x) * INV_SQRT_2PI
    return dy * (cdf + x * pdf)


class GeluTanhCache(NamedTuple):
    x: Array  # (...)
    t: Array  # (...)  the tanh


@operation
def gelu_tanh(x):
    """The approximation y = x (1 + tanh(u)) / 2 with u = √(2/π) (x + 0.044715 x³).

    It differs from `gelu` by up to 4.7e-4: another function, for weights that were trained with it.
    """
    xp = array_module(x)
    t = xp.tanh(SQRT_2_OVER_PI * x * (1 + CUBIC * x * x))
    return 0.5 * x * (1 + t), GeluTanhCache(x, t)


@backward_of(gelu_tanh, result=lambda cache: cache.x.shape)
def gelu_tanh_backward(dy, cache):
    """dx = dy ((1 + t)/2 + x (1 − t²)/2 · du/dx) with du/dx = √(2/π) (1 + 3 · 0.044715 x²)."""
    x, t = cache
    du = SQRT_2_OVER_PI * (1 + 3 * CUBIC * x * x)
    return dy * (0.5 * (1 + t) + 0.5 * x * (1 - t * t) * du)


class QuickGeluCache(NamedTuple):
    x: Array     # (...)
    gate: Array  # (...)  σ(1.702 x)


@operation
def quick_gelu(x):
    """The approximation y = x σ(1.702 x) with σ(u) = 1 / (1 + exp(−u)), which CLIP's first weights were trained with.

    It differs from `gelu` by up to 0.02: another function. Hendrycks & Gimpel 2016, section 2. Derived in notebooks/17.
    """
    gate = logistic(QUICK * x)
    return x * gate, QuickGeluCache(x, gate)


@backward_of(quick_gelu, result=lambda cache: cache.x.shape)
def quick_gelu_backward(dy, cache):
    """dx = dy σ (1 + 1.702 x (1 − σ)), as σ′(u) = σ (1 − σ)."""
    x, gate = cache
    return dy * (gate * (1 + QUICK * x * (1 - gate)))
