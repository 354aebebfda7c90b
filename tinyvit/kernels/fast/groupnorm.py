"""Group norm by the kernels of batch norm: the channels of each sample, one after the other, are its channels."""

from typing import NamedTuple

import numpy as np

from tinyvit.arrays import Array
from tinyvit.functional.groupnorm import GroupNormCache, group_norm, group_norm_backward
from tinyvit.kernels.fast.batchnorm import fit, gradient, gradient_sums, in_two, moments, normalise
from tinyvit.kernels.fast.compiled import as_contiguous


class FastGroupNormCache(NamedTuple):
    x: Array       # (B, C, …)
    mean2: Array   # (2, B·C)  the mean of a channel's group, and what its rounding has left of it
    rstd: Array    # (B, G, 1)  1 / standard deviation
    weight: Array  # (C,)

    shape = property(lambda self: self.x.shape)

    @property
    def xhat(self):
        """The normalised input (B, C, …), recomputed."""
        mean, rest = (one.reshape(*self.x.shape[:2], *(1,) * (self.x.ndim - 2)) for one in self.mean2)
        centred = (self.x - mean - rest).reshape(*self.rstd.shape[:2], -1)
        return (centred * self.rstd).reshape(self.x.shape)


def side_by_side(x):
    """x (B, C, …) as (1, B·C, L): a sample with the channels of all."""
    return as_contiguous(x).reshape(1, x.shape[0] * x.shape[1], -1)


def group_norm_fast(x, weight, bias, num_groups, eps=1e-5):
    if not fit(x, weight, bias) or not isinstance(num_groups, int) or num_groups < 1 or x.shape[1] % num_groups:
        return group_norm.reference(x, weight, bias, num_groups, eps)
    B, C = x.shape[:2]
    mean, squares = np.zeros((2, B * num_groups))
    moments(as_contiguous(x).reshape(1, B * num_groups, -1), mean, squares)
    rstd = ((squares / (x.size // mean.size) + eps) ** -0.5).astype("float32").reshape(B, num_groups, 1)
    mean2, y = in_two(np.repeat(mean, C // num_groups)), np.empty(x.shape, "float32")
    scale = (rstd * weight.reshape(num_groups, -1)).reshape(-1)
    normalise(side_by_side(x), mean2, scale, np.tile(bias, B), side_by_side(y))
    return y, FastGroupNormCache(x, mean2, rstd, weight)


def group_norm_backward_fast(dy, cache, into):
    x, mean2, rstd, weight = cache
    if dy.dtype != x.dtype:
        return group_norm_backward.reference(dy, GroupNormCache(cache.xhat, rstd, weight))
    products, sums = np.zeros((2, mean2.shape[1]))
    gradient_sums(side_by_side(dy), side_by_side(x), mean2, products, sums)
    groups = *rstd.shape[:2], -1                                               # (B, G, C/G)
    scale, share = rstd * weight.reshape(1, groups[1], -1), groups[0] * groups[1] / x.size
    shift = rstd * share * (weight.reshape(1, groups[1], -1) * sums.reshape(groups)).sum(-1, keepdims=True)
    slope = rstd**2 * share * (scale * products.reshape(groups)).sum(-1, keepdims=True)
    dx = np.empty(x.shape, "float32")
    each = (np.broadcast_to(per, scale.shape).astype("float32").reshape(-1) for per in (scale, shift, slope))
    gradient(side_by_side(dy), side_by_side(x), mean2, *each, side_by_side(dx))
    dweight = (products.reshape(groups) * rstd).reshape(len(x), -1).sum(0)
    return dx, dweight.astype("float32"), sums.reshape(len(x), -1).sum(0).astype("float32")


group_norm.register(("numpy", "float32"), group_norm_fast, "fast")
group_norm_backward.register_cache(FastGroupNormCache, group_norm_backward_fast)
