"""The logistic function, and what is made of it: SiLU and SwiGLU."""

from typing import NamedTuple

from tinyvit.arrays import Array, array_module
from tinyvit.dispatch import backward_of, operation


class SigmoidCache(NamedTuple):
    y: Array  # (...)


@operation
def sigmoid(x):
    """y = 1 / (1 + exp(−x)), between 0 and 1; for negative x as exp(x) / (1 + exp(x)), so that nothing overflows.

    Derived in notebooks/14.
    """
    y = logistic(x)
    return y, SigmoidCache(y)


@backward_of(sigmoid, result=lambda cache: cache.y.shape)
def sigmoid_backward(dy, cache):
    """dx = dy y (1 − y)."""
    return dy * (cache.y * (1 - cache.y))


class SiluCache(NamedTuple):
    x: Array     # (...)
    gate: Array  # (...)  σ(x)


@operation
def silu(x):
    """y = x σ(x) with σ(x) = 1 / (1 + exp(−x)). Hendrycks & Gimpel 2016, section 4; Elfwing et al. 2018.

    Derived in notebooks/14.
    """
    gate = logistic(x)
    return x * gate, SiluCache(x, gate)


@backward_of(silu, result=lambda cache: cache.x.shape)
def silu_backward(dy, cache):
    """dx = dy σ(x) (1 + x (1 − σ(x)))."""
    x, gate = cache
    return dy * (gate * (1 + x * (1 - gate)))


class SwigluCache(NamedTuple):
    x: Array     # (..., 2H)
    gate: Array  # (..., H)  σ of the first half


@operation
def swiglu(x):
    """y = a σ(a) · b for the halves a and b of `x` (..., 2H): SiLU of one is the gate of the other, (..., H).

    Shazeer 2020, "GLU variants improve transformer", eq. 6.
    """
    if not x.ndim or x.shape[-1] % 2:
        raise ValueError(f"swiglu: expected x (..., 2H) with two halves, got {x.shape}")
    half = x.shape[-1] // 2
    gate = logistic(x[..., :half])
    return x[..., :half] * gate * x[..., half:], SwigluCache(x, gate)


@backward_of(swiglu, result=lambda cache: cache.gate.shape)
def swiglu_backward(dy, cache):
    """da = dy b σ(a) (1 + a (1 − σ(a))) and db = dy a σ(a), side by side."""
    x, gate = cache
    a, b = x[..., : gate.shape[-1]], x[..., gate.shape[-1] :]
    da = dy * b * (gate * (1 + a * (1 - gate)))
    return array_module(dy).concatenate([da, dy * (a * gate)], axis=-1)


def logistic(x):
    """σ(x), by the exponential that is at most 1."""
    where = array_module(x).where
    negative = x.real < 0
    small = array_module(x).exp(where(negative, x, -x))
    return where(negative, small, 1) / (1 + small)
