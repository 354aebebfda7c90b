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
    gate: Array   # (...)
    up: Array     # (...)
    share: Array  # (...)  σ(gate)


@operation(arrays="gate up")
def swiglu(gate, up):
    """y = gate σ(gate) · up: SiLU of one array is the gate of the other, of the same shape.

    Shazeer 2020, "GLU variants improve transformer", eq. 6.
    """
    if gate.shape != up.shape:
        raise ValueError(f"swiglu: expected gate and up of one shape, got {gate.shape} and {up.shape}")
    share = logistic(gate)
    return gate * share * up, SwigluCache(gate, up, share)


@backward_of(swiglu, result=lambda cache: cache.up.shape)
def swiglu_backward(dy, cache):
    """dgate = dy up σ(gate) (1 + gate (1 − σ(gate))) and dup = dy gate σ(gate). Returns (dgate, dup)."""
    gate, up, share = cache
    return dy * up * (share * (1 + gate * (1 - share))), dy * (gate * share)


def logistic(x):
    """σ(x), by the exponential that is at most 1."""
    where = array_module(x).where
    negative = x.real < 0
    small = array_module(x).exp(where(negative, x, -x))
    return where(negative, small, 1) / (1 + small)
