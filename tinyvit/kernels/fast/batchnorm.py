"""Batch norm: the statistics in one pass over the input, and x̂ computed where it is needed instead of kept."""

from typing import Any, NamedTuple

import numpy as np

from tinyvit.arrays import Array
from tinyvit.functional.batchnorm import (
    BatchNormCache,
    RunningNormCache,
    batch_norm,
    batch_norm_backward,
    batch_norm_running,
    batch_norm_running_backward,
    check_count,
    join_moments,
    per_channel,
    sum_of_parts,
)
from tinyvit.kernels.fast.compiled import ANY_ORDER, INPUT, OUTPUT, TOTAL, as_contiguous, jit
from tinyvit.kernels.fast.exp import F
from tinyvit.kernels.fast.layernorm import centre

ZERO = F(0.0)


class FastNormCache(NamedTuple):
    x: Array       # (B, C, …)
    mean2: Array   # (2, C)  the mean, and what its rounding has left of it
    rstd: Array    # (C,)  1 / standard deviation
    weight: Array  # (C,)

    @property
    def shape(self):
        return self.x.shape

    @property
    def xhat(self):
        """The normalised input (B, C, …), recomputed."""
        mean, rest = self.mean2
        return (self.x - per_channel(mean, self.x) - per_channel(rest, self.x)) * per_channel(self.rstd, self.x)


class FastBatchNormCache(NamedTuple):
    norm: FastNormCache
    mean: Array      # (C,)  of the batch
    variance: Array  # (C,)  of the batch; unbiased
    count: int
    join: Any

    shape = property(lambda self: self.norm.shape)
    xhat = property(lambda self: self.norm.xhat)
    rstd = property(lambda self: self.norm.rstd)
    weight = property(lambda self: self.norm.weight)


class FastRunningNormCache(NamedTuple):
    norm: FastNormCache

    shape = property(lambda self: self.norm.shape)
    xhat = property(lambda self: self.norm.xhat)
    rstd = property(lambda self: self.norm.rstd)
    weight = property(lambda self: self.norm.weight)


@jit(INPUT("B C L"), TOTAL("C"), TOTAL("C"), math=ANY_ORDER)
def moments(x, mean, squares):
    """The mean of every channel, and its sum of squared differences from it, sample by sample.

    Welford's recurrence: Chan, Golub & LeVeque 1979, eqs. 1.5.
    """
    B, C, L = x.shape
    for b in range(B):
        share = 1.0 / (b + 1)
        for c in range(C):
            total = ZERO
            for i in range(L):
                total += x[b, c, i]
            near = total / F(L)
            rest, around = ZERO, ZERO
            for i in range(L):
                difference = x[b, c, i] - near
                rest += difference
                around += difference * difference
            change = near + np.float64(rest) / L - mean[c]
            mean[c] += change * share
            squares[c] += around - np.float64(rest) * rest / L + change * change * L * b * share


@jit(INPUT("B C L"), INPUT("2 C"), INPUT("C"), INPUT("C"), OUTPUT("B C L"))
def normalise(x, mean, scale, bias, y):
    B, C, L = x.shape
    for b in range(B):
        for c in range(C):
            first, rest, factor, shift = mean[0, c], mean[1, c], scale[c], bias[c]
            for i in range(L):
                y[b, c, i] = centre(x[b, c, i], first, rest) * factor + shift


@jit(INPUT("B C L"), INPUT("B C L"), INPUT("2 C"), TOTAL("C"), TOTAL("C"), math=ANY_ORDER)
def gradient_sums(dy, x, mean, products, sums):
    """Σ dy (x − mean) and Σ dy, added to what is there."""
    B, C, L = x.shape
    for b in range(B):
        for c in range(C):
            first, rest, product, total = mean[0, c], mean[1, c], ZERO, ZERO
            for i in range(L):
                product += dy[b, c, i] * centre(x[b, c, i], first, rest)
                total += dy[b, c, i]
            products[c] += product
            sums[c] += total


@jit(INPUT("B C L"), INPUT("B C L"), INPUT("2 C"), INPUT("C"), INPUT("C"), INPUT("C"), OUTPUT("B C L"))
def gradient(dy, x, mean, scale, shift, slope, dx):
    """dx = scale dy − shift − slope (x − mean)."""
    B, C, L = x.shape
    for b in range(B):
        for c in range(C):
            first, rest, factor, less, per = mean[0, c], mean[1, c], scale[c], shift[c], slope[c]
            for i in range(L):
                dx[b, c, i] = dy[b, c, i] * factor - less - centre(x[b, c, i], first, rest) * per


def flat(x):
    """x (B, C, …) as (B, C, L)."""
    return as_contiguous(x).reshape(*x.shape[:2], -1)


def in_two(mean):
    """A mean in float64 as two numbers in float32: rounded, and the rest."""
    rounded = mean.astype("float32")
    return np.stack([rounded, (mean - rounded).astype("float32")])


def normalise_by(x, weight, bias, mean, rstd):
    """x normalised by a mean in float64, and the cache."""
    y, mean2 = np.empty(x.shape, "float32"), in_two(mean)
    normalise(flat(x), mean2, rstd * weight, as_contiguous(bias), flat(y))
    return y, FastNormCache(x, mean2, rstd, weight)


def fit(x, *vectors):
    return x.ndim > 1 and x.size and all(v.shape == x.shape[1:2] and v.dtype == x.dtype for v in vectors)


def batch_norm_fast(x, weight, bias, eps=1e-5, join=None):
    if not fit(x, weight, bias):
        return batch_norm.reference(x, weight, bias, eps, join)
    mean, squares = np.zeros((2, x.shape[1]))
    moments(flat(x), mean, squares)
    mean, squares, count = join_moments((mean, squares, x.size // x.shape[1]), join)
    check_count(x, count)
    y, norm = normalise_by(x, weight, bias, mean, ((squares / count + eps) ** -0.5).astype("float32"))
    return y, FastBatchNormCache(norm, norm.mean2[0], (squares / (count - 1)).astype("float32"), count, join)


def sums_of(dy, norm):
    """dweight and dbias in float64."""
    products, sums = np.zeros((2, len(norm.rstd)))
    gradient_sums(flat(dy), flat(norm.x), norm.mean2, products, sums)
    return products * norm.rstd, sums


def batch_norm_backward_fast(dy, cache, into):
    norm, mean, variance, count, join = cache
    if dy.dtype != norm.x.dtype:
        alike = BatchNormCache(norm.xhat, norm.rstd, norm.weight, mean, variance, count, join)
        return batch_norm_backward.reference(dy, alike)
    dweight, dbias = sums_of(dy, norm)
    product, total = sum_of_parts((dweight, dbias), join)
    scale, dx = norm.weight * norm.rstd, np.empty(dy.shape, "float32")
    shift, slope = (scale * total / count).astype("float32"), (scale * product / count * norm.rstd).astype("float32")
    gradient(flat(dy), flat(norm.x), norm.mean2, scale, shift, slope, flat(dx))
    return dx, dweight.astype("float32"), dbias.astype("float32")


def batch_norm_running_fast(x, weight, bias, mean, variance, eps=1e-5):
    if not fit(x, weight, bias, mean, variance):
        return batch_norm_running.reference(x, weight, bias, mean, variance, eps)
    y, norm = normalise_by(x, weight, bias, mean.astype("float64"), (variance + np.float32(eps)) ** np.float32(-0.5))
    return y, FastRunningNormCache(norm)


def batch_norm_running_backward_fast(dy, cache, into):
    norm = cache.norm
    if dy.dtype != norm.x.dtype:
        return batch_norm_running_backward.reference(dy, RunningNormCache(norm.xhat, norm.rstd, norm.weight))
    dweight, dbias = sums_of(dy, norm)
    return dy * per_channel(norm.weight * norm.rstd, dy), dweight.astype("float32"), dbias.astype("float32")


batch_norm.register(("numpy", "float32"), batch_norm_fast, "fast")
batch_norm_backward.register_cache(FastBatchNormCache, batch_norm_backward_fast)
batch_norm_running.register(("numpy", "float32"), batch_norm_running_fast, "fast")
batch_norm_running_backward.register_cache(FastRunningNormCache, batch_norm_running_backward_fast)
