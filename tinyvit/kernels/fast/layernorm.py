"""Layer norm, row by row: a row is read from memory once and stays in the nearest cache."""

from typing import NamedTuple

import numpy as np

from tinyvit.arrays import Array
from tinyvit.functional.layernorm import LayerNormCache, fits, layernorm, layernorm_backward
from tinyvit.functional.sums import as_rows
from tinyvit.kernels.fast.compiled import (
    ANY_ORDER,
    FLOAT,
    INPUT,
    OUTPUT,
    TOTAL,
    as_contiguous,
    inline,
    jit,
)
from tinyvit.kernels.fast.exp import F

STAGE = 32  # rows that are added up before their sum is added to the others', in double precision
ZERO, ONE = F(0.0), F(1.0)


class FastLayerNormCache(NamedTuple):
    x: Array           # (..., D)
    statistics: Array  # (rows, 3)  mean, what its rounding has left of it, 1 / standard deviation
    weight: Array      # (D,)

    @property
    def rstd(self):
        """1 / standard deviation (..., 1)."""
        return self.statistics[:, 2].reshape(*self.x.shape[:-1], 1)

    @property
    def xhat(self):
        """The normalised input (..., D), recomputed."""
        mean, rest, rstd = self.statistics.T.reshape(3, *self.x.shape[:-1], 1)
        return (self.x - mean - rest) * rstd


@inline()
def centre(x, mean, rest):
    """x − mean − rest, one after the other: their sum would be rounded to the mean's last digit."""
    return (x - mean) - rest


@inline(math=False)
def product(x, y):
    """x y, rounded: the same number wherever it is needed, so that what is equal in a row cancels to nothing."""
    return x * y


@jit(
    INPUT("rows D"), INPUT("D"), INPUT("D"), FLOAT, OUTPUT("rows D"), OUTPUT("rows 3"), math=ANY_ORDER
)
def normalise(x, weight, bias, eps, y, statistics):
    rows, D = x.shape
    share = ONE / F(D)
    for r in range(rows):
        total = ZERO
        for j in range(D):
            total += x[r, j]
        mean = total * share
        rest, squares = ZERO, ZERO
        for j in range(D):
            rest += centre(x[r, j], mean, ZERO)
        rest *= share
        for j in range(D):
            c = centre(x[r, j], mean, rest)
            squares += c * c
        rstd = ONE / np.sqrt(squares * share + eps)
        for j in range(D):
            y[r, j] = centre(x[r, j], mean, rest) * rstd * weight[j] + bias[j]
        statistics[r, 0], statistics[r, 1], statistics[r, 2] = mean, rest, rstd


@jit(
    INPUT("rows D"), INPUT("rows D"), INPUT("rows 3"), INPUT("D"), OUTPUT("rows D"), TOTAL("D"), TOTAL("D"),
    math=ANY_ORDER,
)  # fmt: skip
def normalise_backward(dy, x, statistics, weight, dx, dweight, dbias):
    """dx, and dweight and dbias added to what is there."""
    rows, D = dy.shape
    share = ONE / F(D)
    stage = np.zeros((2, D), np.float32)
    for r in range(rows):
        mean, rest, rstd = statistics[r, 0], statistics[r, 1], statistics[r, 2]
        g_total, dot = ZERO, ZERO
        for j in range(D):
            xhat = centre(x[r, j], mean, rest) * rstd
            g = product(dy[r, j], weight[j])
            g_total += g
            dot += g * xhat
            stage[0, j] += dy[r, j] * xhat
            stage[1, j] += dy[r, j]
        g_total *= share
        dot *= share
        for j in range(D):
            xhat = centre(x[r, j], mean, rest) * rstd
            dx[r, j] = (product(dy[r, j], weight[j]) - g_total - xhat * dot) * rstd
        if r % STAGE == STAGE - 1 or r == rows - 1:
            for j in range(D):
                dweight[j] += stage[0, j]
                dbias[j] += stage[1, j]
            stage[:] = ZERO


def layernorm_fast(x, weight, bias, eps=1e-6):
    if not (fits(x, weight, bias) and x.size and x.dtype == weight.dtype == bias.dtype):
        return layernorm.reference(x, weight, bias, eps)
    x, weight, bias = map(as_contiguous, (x, weight, bias))
    rows = as_rows(x)
    y, statistics = np.empty_like(rows), np.empty((len(rows), 3), "float32")
    normalise(rows, weight, bias, eps, y, statistics)
    return y.reshape(x.shape), FastLayerNormCache(x, statistics, weight)


def layernorm_backward_fast(dy, cache, into):
    x, statistics, weight = cache
    if dy.dtype == x.dtype:
        dy = as_contiguous(dy)
        rows = as_rows(dy)
        dx, totals = np.empty_like(rows), np.zeros((2, rows.shape[1]))
        normalise_backward(rows, as_rows(x), statistics, weight, dx, *totals)
        return dx.reshape(dy.shape), *totals.astype("float32")
    return layernorm_backward.reference(dy, LayerNormCache(cache.xhat, cache.rstd, weight))


layernorm.register(("numpy", "float32"), layernorm_fast, "fast")
layernorm_backward.register_cache(FastLayerNormCache, layernorm_backward_fast)
