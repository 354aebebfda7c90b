"""GELU in one pass, which leaves its slope for the backward: that is one product."""

from typing import NamedTuple

import numpy as np

from tinyvit.arrays import Array
from tinyvit.functional.gelu import INV_SQRT_2PI, gelu, gelu_backward
from tinyvit.kernels.fast.compiled import INPUT, OUTPUT, as_contiguous, jit
from tinyvit.kernels.fast.exp import F, exp
from tinyvit.kernels.gelu import LARGEST_SQUARE, U_OVER_X

U0, U1, U2, U3, U4, U5, U6 = map(F, U_OVER_X)
LARGEST_SQUARE, INV_SQRT_2PI = F(LARGEST_SQUARE), F(INV_SQRT_2PI)
ONE, MINUS_HALF, MINUS_TWO = F(1.0), F(-0.5), F(-2.0)


class FastGeluCache(NamedTuple):
    x: Array      # (...)
    slope: Array  # (...)  Φ(x) + x φ(x)

    @property
    def cdf(self):
        """Φ(x) (...), computed when asked for."""
        return gelu.reference(self.x)[1].cdf


@jit(INPUT("n"), OUTPUT("n"), OUTPUT("n"))
def gelu_and_slope(x, y, slope):
    """y = x Φ(x) and its slope Φ(x) + x φ(x), with Φ(x) = 1 / (1 + exp(−2 u(x))); see `kernels.gelu` on u."""
    for i in range(x.size):
        square = min(x[i] * x[i], LARGEST_SQUARE)
        u = x[i] * ((((((U6 * square + U5) * square + U4) * square + U3) * square + U2) * square + U1) * square + U0)
        cdf = ONE / (ONE + exp(MINUS_TWO * u))
        y[i] = x[i] * cdf
        slope[i] = cdf + x[i] * exp(MINUS_HALF * x[i] * x[i]) * INV_SQRT_2PI


def gelu_fast(x):
    flat = as_contiguous(x).reshape(-1)
    y, slope = np.empty_like(flat), np.empty_like(flat)
    gelu_and_slope(flat, y, slope)
    return y.reshape(x.shape), FastGeluCache(x, slope.reshape(x.shape))


def gelu_backward_fast(dy, cache):
    return dy * cache.slope


gelu.register(("numpy", "float32"), gelu_fast, "fast")
gelu_backward.register_cache(FastGeluCache, gelu_backward_fast)
