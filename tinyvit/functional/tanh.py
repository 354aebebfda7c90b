"""The hyperbolic tangent, between the two layers of the pre-training head."""

from typing import NamedTuple

from tinyvit.arrays import Array, array_module
from tinyvit.dispatch import backward_of, operation


class TanhCache(NamedTuple):
    y: Array  # (...)


@operation
def tanh(x):
    """y = tanh(x), entry by entry."""
    y = array_module(x).tanh(x)
    return y, TanhCache(y)


@backward_of(tanh, result=lambda cache: cache.y.shape)
def tanh_backward(dy, cache):
    """dx = dy (1 − y²)."""
    return dy * (1 - cache.y * cache.y)
