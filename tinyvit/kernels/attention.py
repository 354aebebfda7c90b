"""Attention in float32 by NumPy, a few samples at a time: scores, their softmax and its gradient stay in the cache.

In place, and on copies that are contiguous, which matrix products are fastest on.
"""

import numpy as np

from tinyvit.functional.attention import AttentionCache, attention, attention_backward, check_shapes
from tinyvit.functional.chunks import CHUNK, chunks
from tinyvit.functional.heads import empty_gradients
from tinyvit.functional.sums import as_rows
from tinyvit.kernels.softmax import SAFE, softmax_in_place


@np.errstate(over="ignore")  # the difference of two scores may be −∞, whose exp is right
def attention_float32(q, k, v, bias=None, scale=None):
    if not is_supported(q, k, v, bias, scale):
        return attention.reference(q, k, v, bias, scale)
    check_shapes(q, k, v, bias)
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    B, H, Nq, _ = q.shape
    probs = np.empty((B, H, Nq, k.shape[2]), "float32")
    y = np.empty((B, Nq, H, v.shape[3]), "float32").transpose(0, 2, 1, 3)  # heads side by side, for the next layer
    for part in samples(probs):
        scores = probs[part]
        np.matmul(times(q[part], scale), np.ascontiguousarray(k[part].mT), out=scores)
        if bias is None:
            softmax_in_place(as_rows(scores))
        else:
            scores += bias[part] if is_per_sample(bias) else bias
            biased_softmax_in_place(as_rows(scores))
        np.matmul(scores, np.ascontiguousarray(v[part]), out=y[part])
    return y, AttentionCache(q, k, v, probs, scale, bias)


def attention_backward_float32(dy, cache):
    q, k, v, probs, scale, bias = cache
    if not is_supported(q, k, v, bias, scale) or not dy.dtype == probs.dtype == q.dtype:
        return attention_backward.reference(dy, cache)
    dq, dk, dv = gradients = empty_gradients(q, k, v)
    if bias is not None:
        dbias = np.empty(bias.shape, "float32") if is_per_sample(bias) else np.zeros(bias.shape)
    for part in samples(probs):
        p, dy_part = probs[part], np.ascontiguousarray(dy[part])
        np.matmul(p.mT, dy_part, out=dv[part])
        dscores = dy_part @ np.ascontiguousarray(v[part].mT)      # dprobs, then dscores in place
        rows, p_rows = as_rows(dscores), as_rows(p)
        rows -= np.einsum("rk,rk->r", rows, p_rows)[:, None]
        rows *= p_rows
        np.matmul(dscores, times(k[part], scale), out=dq[part])
        np.matmul(dscores.mT, times(q[part], scale), out=dk[part])
        if bias is not None and is_per_sample(bias):
            dbias[part] = sum_of_scores(dscores, dbias[part].shape)
        elif bias is not None:
            dbias += sum_of_scores(dscores, bias.shape)  # in float64, as there are many parts
    return gradients if bias is None else gradients.with_bias(dbias.astype("float32", copy=False))


def biased_softmax_in_place(rows):
    """Scores (R, N) become probabilities, those of a row that is −∞ throughout zeros."""
    ones = np.ones((rows.shape[1], 1), "float32")
    if rows.max() < SAFE:  # a row's largest number need not be found where none is too large and none of the sums small
        exps = np.exp(rows)
        total = exps @ ones
        if total.min() > np.exp(-SAFE):
            np.multiply(exps, 1 / total, out=rows)
            return
    rows -= np.maximum(rows.max(1, keepdims=True), np.finfo("float32").min)
    np.exp(rows, out=rows)
    total = rows @ ones
    rows *= 1 / (total + (total == 0))


def sum_of_scores(dscores, shape):
    """dscores (B, H, Nq, Nk) summed to the shape of a bias; `functional.sums.sum_to_shape`, faster."""
    B, H, Nq, Nk = (1,) * (4 - len(shape)) + shape
    if Nk < dscores.shape[3]:
        dscores = dscores @ np.ones((dscores.shape[3], 1), "float32")
    if Nq < dscores.shape[2]:
        dscores = np.ones((1, dscores.shape[2]), "float32") @ dscores
    repeated = tuple(axis for axis, side in enumerate((B, H)) if side < dscores.shape[axis])
    return dscores.sum(repeated).reshape(shape) if repeated else dscores.reshape(shape)


def is_per_sample(bias):
    """Whether a bias has an entry for each sample, and isn't the same for all of them."""
    return bias.ndim == 4 and len(bias) > 1


def is_supported(q, k, v, bias, scale):
    """Whether the kernels take these: non-empty float32 arrays with four axes, and a number as the scale."""
    return (
        all(x.ndim == 4 and x.size and x.dtype == "float32" for x in (q, k, v))
        and (bias is None or bias.dtype == "float32")
        and (scale is None or isinstance(scale, (int, float)))
    )


def times(x, scale):
    """x · scale, contiguous."""
    return np.multiply(x, scale, order="C")


def samples(probs):
    """As many samples at a time as fit the cache."""
    return chunks(len(probs), max(1, 2 * CHUNK // (probs.size // len(probs))))


attention.register(("numpy", "float32"), attention_float32)
attention_backward.register(("numpy", "float32"), attention_backward_float32)
