"""Layer norm in float32 by NumPy, in pieces that stay in a core's cache, with BLAS for the means."""

import numpy as np

from tinyvit.functional.chunks import CHUNK, chunks
from tinyvit.functional.layernorm import LayerNormCache, fits, layernorm, layernorm_backward
from tinyvit.functional.sums import as_rows, sum_first

LONGEST = 2048  # numbers in a row; of longer ones the reference's pairwise sums keep more digits than BLAS does


def layernorm_float32(x, weight, bias, eps=1e-6):
    alike = x.dtype == weight.dtype == bias.dtype
    if not (fits(x, weight, bias) and alike and x.size and x.shape[-1] <= LONGEST):
        return layernorm.reference(x, weight, bias, eps)
    rows, D = as_rows(x), x.shape[-1]
    y, xhat = np.empty(rows.shape, "float32"), np.empty(rows.shape, "float32")
    rstd, average = np.empty((len(rows), 1), "float32"), np.full((D, 1), 1 / D, "float32")
    for part in pieces(rows):
        centred, scale = xhat[part], rstd[part]
        np.subtract(rows[part], rows[part] @ average, out=centred)
        centred -= centred @ average  # what the rounding of a large mean has left
        scale[:, 0] = np.einsum("rd,rd->r", centred, centred)
        scale *= 1 / D
        scale += eps
        np.power(scale, -0.5, out=scale)
        centred *= scale
        np.multiply(centred, weight, out=y[part])
        y[part] += bias
    return y.reshape(x.shape), LayerNormCache(xhat.reshape(x.shape), rstd.reshape(*x.shape[:-1], 1), weight)


def layernorm_backward_float32(dy, cache, into):
    if not dy.size or dy.shape[-1] > LONGEST:
        return layernorm_backward.reference(dy, cache)
    rows, (xhat, rstd, weight) = as_rows(dy), (as_rows(array) for array in cache)
    D = dy.shape[-1]
    dx, average = np.empty(rows.shape, "float32"), np.full((D, 1), 1 / D, "float32")
    parts = pieces(rows)
    dweight, dbias = np.empty((2, len(parts), D), "float32")
    scratch = np.empty((min(len(rows), parts[0].stop), D), "float32")
    for i, part in enumerate(parts):
        g, normal, products = dx[part], xhat[part], scratch[: part.stop - part.start]
        np.multiply(rows[part], normal, out=products)
        dweight[i], dbias[i] = sum_first(products), sum_first(rows[part])
        products *= weight                                        # g x̂
        dot = products @ average                                # (rows, 1)  mean(g x̂)
        np.multiply(rows[part], weight, out=g)
        g -= g @ average
        np.multiply(normal, dot, out=products)
        g -= products
        g *= rstd[part]
    return dx.reshape(dy.shape), sum_first(dweight), sum_first(dbias)


def pieces(rows):
    """As many whole rows at a time as fit the cache."""
    return chunks(len(rows), max(1, CHUNK // rows.shape[1]))


layernorm.register(("numpy", "float32"), layernorm_float32)
layernorm_backward.register(("numpy", "float32"), layernorm_backward_float32)
