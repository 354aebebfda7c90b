"""Softmax in float32 by NumPy, without a search for each row's largest number where none is needed."""

import numpy as np

from tinyvit.functional.softmax import SoftmaxCache, softmax, softmax_backward
from tinyvit.functional.sums import as_rows

SAFE = 40.0  # exp(±40), and the sum of a million of them, are far from a float32's limits


def softmax_float32(x):
    if not x.size or not x.ndim:
        return softmax.reference(x)
    probs = x.copy("C")
    softmax_in_place(as_rows(probs))
    return probs, SoftmaxCache(probs)


def softmax_in_place(rows):
    """Scores (R, N) become probabilities."""
    # A row's largest number takes longer to find than its exponentials to compute; the whole array's is found at once.
    if not max(float(rows.max()), -float(rows.min())) < SAFE:
        rows -= rows.max(1, keepdims=True)
    np.exp(rows, out=rows)
    rows *= 1 / (rows @ np.ones((rows.shape[1], 1), "float32"))


def softmax_backward_float32(dy, cache):
    probs = cache.probs
    if not dy.size or not dy.ndim:
        return softmax_backward.reference(dy, cache)
    rows, p = as_rows(dy), as_rows(probs)
    dx = rows - np.einsum("rk,rk->r", rows, p)[:, None]
    dx *= p
    return dx.reshape(dy.shape)


softmax.register(("numpy", "float32"), softmax_float32)
softmax_backward.register(("numpy", "float32"), softmax_backward_float32)
