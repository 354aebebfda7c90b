"""`linear` with its bias added in one pass, and the sums over rows that are its bias's gradient in another."""

import numpy as np

from tinyvit.functional.linear import LinearCache, linear, linear_backward
from tinyvit.functional.sums import as_rows
from tinyvit.kernels.fast.compiled import INPUT, OUTPUT, TOTAL, as_contiguous, jit
from tinyvit.kernels.linear import linear_backward_wanted

STAGE = 32  # rows that are added up before their sum is added to the others', in double precision


@jit(OUTPUT("rows D"), INPUT("D"))
def add_bias(y, bias):
    rows, D = y.shape
    for r in range(rows):
        for j in range(D):
            y[r, j] += bias[j]


@jit(INPUT("rows D"), TOTAL("D"))
def add_rows(x, total):
    """The sum of all rows of x, added to `total`."""
    rows, D = x.shape
    stage = np.zeros(D, np.float32)
    for r in range(rows):
        for j in range(D):
            stage[j] += x[r, j]
        if r % STAGE == STAGE - 1 or r == rows - 1:
            for j in range(D):
                total[j] += stage[j]
                stage[j] = 0


def linear_fast(x, weight, bias=None):
    if bias is None or weight.shape != bias.shape + x.shape[-1:] or not x.dtype == weight.dtype == bias.dtype:
        return linear.reference(x, weight, bias)
    y = as_rows(x) @ weight.mT
    add_bias(y, as_contiguous(bias))
    return y.reshape(*x.shape[:-1], len(weight)), LinearCache(x, weight, True)


def linear_backward_fast(dy, cache, into, inputs=True):
    x, weight, has_bias = cache
    if not has_bias or not x.dtype == weight.dtype == dy.dtype:
        return linear_backward_wanted(dy, cache, into, inputs)
    dx, dweight, _ = linear_backward_wanted(dy, cache, (into[0], False), inputs)
    if into[1] is False:
        return dx, dweight, None
    total = np.zeros(len(weight))
    add_rows(as_contiguous(as_rows(dy)), total)
    return dx, dweight, total.astype("float32")


linear.register(("numpy", "float32"), linear_fast, "fast")
linear_backward.register(("numpy", "float32"), linear_backward_fast, "fast")
