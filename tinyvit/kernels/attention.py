"""Attention in float32 by NumPy, a few samples at a time: scores, their softmax and its gradient stay in the cache.

In place, and on copies that lie as matrix products like them best.
"""

import numpy as np

from tinyvit.functional.attention import AttentionCache, attention, attention_backward, check_shapes
from tinyvit.functional.sums import as_rows
from tinyvit.kernels.chunks import CHUNK, chunks
from tinyvit.kernels.softmax import softmax_in_place


def attention_float32(q, k, v, bias=None, scale=None):
    if bias is not None or not are_plain(q, k, v, scale):
        return attention.reference(q, k, v, bias, scale)
    check_shapes(q, k, v)
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    B, H, Nq, _ = q.shape
    probs = np.empty((B, H, Nq, k.shape[2]), "float32")
    y = np.empty((B, Nq, H, v.shape[3]), "float32").transpose(0, 2, 1, 3)  # heads side by side, as what follows wants
    for part in samples(probs):
        scores = probs[part]
        np.matmul(times(q[part], scale), np.ascontiguousarray(k[part].mT), out=scores)
        softmax_in_place(as_rows(scores))
        np.matmul(scores, np.ascontiguousarray(v[part]), out=y[part])
    return y, AttentionCache(q, k, v, probs, scale, None)


def attention_backward_float32(dy, cache):
    q, k, v, probs, scale, bias_shape = cache
    if bias_shape is not None or not are_plain(q, k, v, scale) or not dy.dtype == probs.dtype == q.dtype:
        return attention_backward.reference(dy, cache)
    (B, H, Nq, d), (Nk, dv) = q.shape, v.shape[2:]
    if (Nq, d) == (Nk, dv):  # one array, as the layer that they came from wants it
        dq, dk, dv = np.empty((B, Nq, 3, H, d), "float32").transpose(2, 0, 3, 1, 4)
    else:
        dq, dk, dv = (np.empty(x.shape, "float32") for x in (q, k, v))
    for part in samples(probs):
        p, dy_part = probs[part], np.ascontiguousarray(dy[part])
        np.matmul(p.mT, dy_part, out=dv[part])
        dscores = dy_part @ np.ascontiguousarray(v[part].mT)      # the gradient of the probabilities, at first
        rows, p_rows = as_rows(dscores), as_rows(p)
        rows -= np.einsum("rk,rk->r", rows, p_rows)[:, None]
        rows *= p_rows
        np.matmul(dscores, times(k[part], scale), out=dq[part])
        np.matmul(dscores.mT, times(q[part], scale), out=dk[part])
    return dq, dk, dv


def are_plain(q, k, v, scale):
    """Whether kernels are made for these: float32 arrays with four axes, none of them empty, and a number."""
    return all(x.ndim == 4 and x.size and x.dtype == "float32" for x in (q, k, v)) and (
        scale is None or isinstance(scale, (int, float))
    )


def times(x, scale):
    """x · scale, in rows one after the other."""
    return np.multiply(x, scale, order="C")


def samples(probs):
    """As many samples at a time as fit the cache."""
    return chunks(len(probs), max(1, 2 * CHUNK // (probs.size // len(probs))))


attention.register(("numpy", "float32"), attention_float32)
attention_backward.register(("numpy", "float32"), attention_backward_float32)
