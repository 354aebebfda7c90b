"""The rectifier, the activation of most convolutional networks."""

from typing import NamedTuple

from tinyvit.arrays import Array, array_module
from tinyvit.dispatch import backward_of, operation


class ReluCache(NamedTuple):
    y: Array  # (...)


@operation
def relu(x):
    """y = max(x, 0), entry by entry; NaN stays NaN. Nair & Hinton 2010, "Rectified linear units improve restricted
    Boltzmann machines"."""
    y = array_module(x).where(x.real <= 0, 0, x)
    return y, ReluCache(y)


@backward_of(relu, result=lambda cache: cache.y.shape)
def relu_backward(dy, cache):
    """dx = dy where y > 0, else 0: at x = 0 the derivative is taken to be 0."""
    return array_module(dy).where(cache.y.real <= 0, 0, dy)
