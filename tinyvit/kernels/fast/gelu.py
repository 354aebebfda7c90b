"""GELU in one pass. Only x is kept; the backward computes the slope again, cheaper than to store and load it."""

from typing import NamedTuple

import numpy as np

from tinyvit.backend import Array
from tinyvit.functional.gelu import INV_SQRT_2PI, GeluCache, gelu, gelu_backward
from tinyvit.kernels.fast.compiled import INPUT, OUTPUT, as_contiguous, compiled, inlined
from tinyvit.kernels.fast.exp import F, exp
from tinyvit.kernels.gelu import LARGEST_SQUARE, U_OVER_X

U0, U1, U2, U3, U4, U5, U6 = map(F, U_OVER_X)
LARGEST_SQUARE, INV_SQRT_2PI = F(LARGEST_SQUARE), F(INV_SQRT_2PI)
ONE, MINUS_HALF, MINUS_TWO = F(1.0), F(-0.5), F(-2.0)


class FastGeluCache(NamedTuple):
    x: Array  # (...)

    @property
    def cdf(self):
        """Φ(x) (...), computed when asked for."""
        return gelu.reference(self.x)[1].cdf


@inlined()
def phi(x):
    """Φ(x) = 1 / (1 + exp(−2 u(x))); see `kernels.gelu` on u."""
    square = min(x * x, LARGEST_SQUARE)
    u = x * ((((((U6 * square + U5) * square + U4) * square + U3) * square + U2) * square + U1) * square + U0)
    return ONE / (ONE + exp(MINUS_TWO * u))


@compiled(INPUT("n"), OUTPUT("n"))
def forward(x, y):
    for i in range(x.size):
        y[i] = x[i] * phi(x[i])


@compiled(INPUT("n"), INPUT("n"), OUTPUT("n"))
def backward(dy, x, dx):
    for i in range(x.size):
        dx[i] = dy[i] * (phi(x[i]) + x[i] * exp(MINUS_HALF * x[i] * x[i]) * INV_SQRT_2PI)


def gelu_fast(x):
    x = as_contiguous(x)
    y = np.empty(x.shape, "float32")
    forward(x.reshape(-1), y.reshape(-1))
    return y, FastGeluCache(x)


def gelu_backward_fast(dy, cache):
    if dy.dtype != "float32":
        return gelu_backward.reference(dy, GeluCache(cache.x, cache.cdf))
    dx = np.empty(dy.shape, "float32")
    backward(as_contiguous(dy).reshape(-1), cache.x.reshape(-1), dx.reshape(-1))
    return dx


gelu.register(("numpy", "float32"), gelu_fast, "fast")
gelu_backward.register_cache(FastGeluCache, gelu_backward_fast)
