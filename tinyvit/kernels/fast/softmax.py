"""Softmax, row by row."""

import numpy as np

from tinyvit.functional.softmax import SoftmaxCache, softmax, softmax_backward
from tinyvit.functional.sums import as_rows
from tinyvit.kernels.fast.compiled import ANY_ORDER, INPUT, OUTPUT, as_bits, as_contiguous, as_float, inline, jit
from tinyvit.kernels.fast.exp import F, exp

ZERO, ONE = F(0.0), F(1.0)
ALL_BUT_SIGN, SIGN = np.int32(0x7FFFFFFF), np.int32(31)
MIN_INT32 = np.int32(-0x80000000)


@inline()
def ordered(bits):
    """A float32's bits as an int32 with the same order: of negative numbers the more bits the less. Its own inverse."""
    return np.int32(bits ^ np.int32(np.int32(bits >> SIGN) & ALL_BUT_SIGN))


@inline(math=ANY_ORDER)
def softmax_row(x):
    """x becomes exp(x − m) / Σ exp(x − m) with its largest number m; returns m and Σ.

    In place: between two arrays that might be one, a loop would have to go number by number.
    """
    # As whole numbers, of which the largest is found by vector instructions; NaN is larger than all.
    largest = MIN_INT32
    for j in range(x.size):
        largest = max(largest, ordered(as_bits(x[j])))
    m = as_float(ordered(largest))
    total = ZERO
    for j in range(x.size):
        x[j] = exp(x[j] - m)
        total += x[j]
    share = ONE / total
    for j in range(x.size):
        x[j] *= share
    return m, total


@jit(OUTPUT("rows N"), math=ANY_ORDER)
def softmax_rows(x):
    for r in range(len(x)):
        softmax_row(x[r])


@jit(INPUT("rows N"), INPUT("rows N"), OUTPUT("rows N"), math=ANY_ORDER)
def softmax_backward_rows(dy, probs, dx):
    for r in range(len(dy)):
        dot = ZERO
        for j in range(dy.shape[1]):
            dot += dy[r, j] * probs[r, j]
        for j in range(dy.shape[1]):
            dx[r, j] = probs[r, j] * (dy[r, j] - dot)


def softmax_fast(x):
    if not x.size or not x.ndim:
        return softmax.reference(x)
    probs = x.copy("C")
    softmax_rows(as_rows(probs))
    return probs, SoftmaxCache(probs)


def softmax_backward_fast(dy, cache):
    probs = cache.probs
    if not dy.size or not dy.ndim or probs.dtype != dy.dtype:
        return softmax_backward.reference(dy, cache)
    dy, probs = as_contiguous(dy), as_contiguous(probs)
    dx = np.empty_like(dy)
    softmax_backward_rows(as_rows(dy), as_rows(probs), as_rows(dx))
    return dx


softmax.register(("numpy", "float32"), softmax_fast, "fast")
softmax_backward.register(("numpy", "float32"), softmax_backward_fast, "fast")
