"""Batch norm by NumPy, in few passes and in place."""

import numpy as np

from tinyvit.functional.batchnorm import (
    BatchNormCache,
    batch_norm,
    batch_norm_backward,
    check_count,
    join_moments,
    per_channel,
    sum_of_parts,
    sum_per_channel,
)
from tinyvit.functional.sums import sum_first


def dot_per_channel(x, y):
    """Σ x y of every channel of x and y (B, C, …): (C,)."""
    x, y = (array.reshape(*array.shape[:2], -1) for array in (x, y))
    return sum_first(np.vecdot(x, y))


def batch_norm_in_place(x, weight, bias, eps=1e-5, join=None):
    if not (x.ndim > 1 and x.size and all(v.shape == x.shape[1:2] and v.dtype == x.dtype for v in (weight, bias))):
        return batch_norm.reference(x, weight, bias, eps, join)
    share = 1 / (x.size // x.shape[1])
    mean = sum_per_channel(x) * share
    xhat = x - per_channel(mean, x)
    rest = sum_per_channel(xhat) * share                                       # what the rounding of the mean has left
    xhat -= per_channel(rest, x)
    own = mean.astype("float64") + rest
    whole, squares, count = join_moments((own, dot_per_channel(xhat, xhat), x.size // x.shape[1]), join)
    check_count(x, count)
    if join is not None:
        xhat += per_channel((own - whole).astype(x.dtype), x)
    rstd = ((squares * (1 / count) + eps) ** -0.5).astype(x.dtype)
    xhat *= per_channel(rstd, x)
    y = xhat * per_channel(weight, x)
    y += per_channel(bias, x)
    mean, variance = (array.astype(x.dtype) for array in (whole, squares * (1 / (count - 1))))
    return y, BatchNormCache(xhat, rstd, weight, mean, variance, count, join)


def batch_norm_backward_in_place(dy, cache, into):
    xhat, rstd, weight, _, _, count, join = cache
    if not dy.dtype == xhat.dtype == weight.dtype:
        return batch_norm_backward.reference(dy, cache)
    dweight, dbias = dot_per_channel(dy, xhat), sum_per_channel(dy)
    product, total = sum_of_parts((dweight, dbias), join)
    dx = xhat * per_channel(product * (-1 / count), dy)
    dx += dy
    dx -= per_channel(total * (1 / count), dy)
    dx *= per_channel(weight * rstd, dy)
    return dx, dweight, dbias


for dtype in ("float32", "float64"):
    batch_norm.register(("numpy", dtype), batch_norm_in_place)
    batch_norm_backward.register(("numpy", dtype), batch_norm_backward_in_place)
