"""GELU in float32 by NumPy, in place and in pieces that fit a core's cache; no SciPy.

SciPy's erf takes 11 ns a number. Φ is also (1 + tanh u(x)) / 2 with the odd function u(x) = artanh(erf(x/√2)), and
NumPy's tanh takes 0.3 ns; u(x)/x is smooth enough in x² for a polynomial of degree 6. Unlike `gelu_tanh`, whose u is
cut off after the cube, this is Φ to 7e-8, half a unit in the last place of a float32 near 1.
"""

import numpy as np

from tinyvit.functional.chunks import CHUNK, chunks
from tinyvit.functional.gelu import INV_SQRT_2PI, GeluCache, gelu, gelu_backward

# u(x)/x as a polynomial in x², lowest power first: the least largest error of Φ on |x| ≤ 5.5, found by reweighted
# least squares against log Φ(x) − log Φ(−x) = 2 u(x). Beyond 5.5, 1 − Φ is less than a float32 can tell from 0.
U_OVER_X = (
    0.797884492695136, 0.0363339112665305, -3.295471071895179e-05, -5.527795546247e-05, 3.973115033606690e-06,
    -1.336469802731277e-07, 1.809365819552291e-09,
)  # fmt: skip
LARGEST_SQUARE = 5.5**2


@np.errstate(over="ignore")  # a square or a u beyond a float32 is cut off, or has the tanh 1
def gelu_float32(x):
    flat = x.reshape(-1)
    y, all_cdf = np.empty_like(flat), np.empty_like(flat)
    scratch = np.empty(min(CHUNK, flat.size), "float32")
    for part in chunks(flat.size):
        x_part, cdf = flat[part], all_cdf[part]
        square = scratch[: x_part.size]
        np.multiply(x_part, x_part, out=square)
        np.minimum(square, LARGEST_SQUARE, out=square)
        np.multiply(square, U_OVER_X[-1], out=cdf)
        for coefficient in U_OVER_X[-2:0:-1]:
            cdf += coefficient
            cdf *= square
        cdf += U_OVER_X[0]
        cdf *= x_part
        np.tanh(cdf, out=cdf)
        cdf += 1
        cdf *= 0.5
        np.multiply(x_part, cdf, out=y[part])
    return y.reshape(x.shape), GeluCache(x, all_cdf.reshape(x.shape))


@np.errstate(over="ignore")
def gelu_backward_float32(dy, cache):
    if not dy.dtype == cache.x.dtype == cache.cdf.dtype:
        return gelu_backward.reference(dy, cache)
    dy, x, all_cdf = (array.reshape(-1) for array in (dy, *cache))
    dx = np.empty_like(dy)
    for part in chunks(dy.size):
        x_part, slope = x[part], dx[part]
        np.multiply(x_part, x_part, out=slope)
        slope *= -0.5
        np.exp(slope, out=slope)
        slope *= x_part
        slope *= INV_SQRT_2PI
        slope += all_cdf[part]
        slope *= dy[part]
    return dx.reshape(cache.x.shape)


gelu.register(("numpy", "float32"), gelu_float32)
gelu_backward.register(("numpy", "float32"), gelu_backward_float32)
