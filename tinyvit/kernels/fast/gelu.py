"""GELU in one pass. What is kept for the backward is its slope, so that the backward is one product."""

import numpy as np

from tinyvit.functional.gelu import INV_SQRT_2PI, gelu
from tinyvit.kernels.fast.compiled import INPUT, OUTPUT, compiled, in_order
from tinyvit.kernels.fast.exp import F, exp
from tinyvit.kernels.gelu import LARGEST_SQUARE, U_OVER_X, GeluSlopeCache

U0, U1, U2, U3, U4, U5, U6 = map(F, U_OVER_X)
LARGEST_SQUARE, INV_SQRT_2PI = F(LARGEST_SQUARE), F(INV_SQRT_2PI)
ONE, MINUS_HALF, MINUS_TWO = F(1.0), F(-0.5), F(-2.0)


@compiled(INPUT, OUTPUT, OUTPUT)
def gelu_and_slope(x, y, slope):
    """y = x Φ(x) and its slope Φ(x) + x φ(x), with Φ(x) = 1 / (1 + exp(−2 u(x))); see `kernels.gelu` on u."""
    for i in range(x.size):
        square = min(x[i] * x[i], LARGEST_SQUARE)
        u = x[i] * ((((((U6 * square + U5) * square + U4) * square + U3) * square + U2) * square + U1) * square + U0)
        cdf = ONE / (ONE + exp(MINUS_TWO * u))
        y[i] = x[i] * cdf
        slope[i] = cdf + x[i] * exp(MINUS_HALF * x[i] * x[i]) * INV_SQRT_2PI


def gelu_fast(x):
    flat = in_order(x).reshape(-1)
    y, slope = np.empty_like(flat), np.empty_like(flat)
    gelu_and_slope(flat, y, slope)
    return y.reshape(x.shape), GeluSlopeCache(slope.reshape(x.shape))


gelu.register(("numpy", "float32"), gelu_fast, "fast")
