"""GELU in float32 by NumPy, in place and in pieces that fit a core's cache; no SciPy.

SciPy's erf takes 11 ns a number. Φ is also (1 + tanh u(x)) / 2 with the odd function u(x) = artanh(erf(x/√2)), and
NumPy's tanh takes 0.3 ns; u(x)/x is smooth enough in x² for a polynomial of degree 6. Unlike `gelu_tanh`, whose u is
cut off after the cube, this is Φ to 7e-8, half a unit in the last place of a float32 near 1.
"""

import numpy as np

from tinyvit.functional.gelu import INV_SQRT_2PI, GeluCache, gelu, gelu_backward
from tinyvit.kernels.chunks import CHUNK, chunks

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
    y, cdf = np.empty_like(flat), np.empty_like(flat)
    room = np.empty(min(CHUNK, flat.size), "float32")
    for part in chunks(flat.size):
        x_part, phi = flat[part], cdf[part]
        square = room[: x_part.size]
        np.clip(x_part, -5.5, 5.5, out=square)
        np.multiply(square, square, out=square)
        np.multiply(square, U_OVER_X[-1], out=phi)
        for coefficient in U_OVER_X[-2:0:-1]:
            phi += coefficient
            phi *= square
        phi += U_OVER_X[0]
        phi *= x_part
        np.tanh(phi, out=phi)
        phi += 1
        phi *= 0.5
        np.multiply(x_part, phi, out=y[part])
    return y.reshape(x.shape), GeluCache(x, cdf.reshape(x.shape))


@np.errstate(over="ignore")
def gelu_backward_float32(dy, cache, into=None):
    x, cdf = (array.reshape(-1) for array in cache)
    flat = dy.reshape(-1)
    dx = np.empty_like(flat)
    for part in chunks(flat.size):
        x_part, slope = x[part], dx[part]
        np.multiply(x_part, x_part, out=slope)
        slope *= -0.5
        np.exp(slope, out=slope)
        slope *= x_part
        slope *= INV_SQRT_2PI
        slope += cdf[part]
        slope *= flat[part]
    return dx.reshape(dy.shape)


gelu.register(("numpy", "float32"), gelu_float32)
gelu_backward.register(("numpy", "float32"), gelu_backward_float32)
