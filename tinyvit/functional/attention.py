"""Scaled dot-product attention."""

from typing import NamedTuple

import numpy as np

from tinyvit.arrays import Array, array_module
from tinyvit.dispatch import backward_of, operation
from tinyvit.functional.dropout import DropoutCache, dropout, dropout_backward
from tinyvit.functional.softmax import SoftmaxCache, softmax, softmax_backward
from tinyvit.functional.sums import sum_to_shape


class AttentionCache(NamedTuple):
    q: Array      # (B, H, Nq, d)
    k: Array      # (B, H, Nk, d)
    v: Array      # (B, H, Nk, dv)
    probs: Array  # (B, H, Nq, Nk)  how much each query takes from each key
    scale: float
    bias: Array | None


def heads_shape(cache):
    """The shape of the result (B, H, Nq, dv), from the cache of any attention."""
    return *cache.q.shape[:-1], cache.v.shape[-1]


@operation(arrays="q k v", any_dtype="bias")
def attention(q, k, v, bias=None, scale=None):
    """Let every query take from all values, by how well it matches their keys:

        scores = q kᵀ · scale + bias   probs = softmax(scores)   heads = probs v

    q (B, H, Nq, d), k (B, H, Nk, d), v (B, H, Nk, dv) give heads (B, H, Nq, dv). `scale` is 1/√d unless given;
    `bias` is an array that broadcasts to the scores (B, H, Nq, Nk). Where it is −∞ the query doesn't see the key, and a
    query that sees no key gets heads of zero, through which no gradient flows. Masks that differ by window,
    (W, 1, N, N), go with windows as heads: q.reshape(B, W·H, N, d), and (positions + masks).reshape(W·H, N, N) as bias.
    Vaswani et al. 2017, "Attention is all you need", eq. 1. Derived in notebooks/03.
    """
    check_shapes(q, k, v, bias)
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    probs = attention_probs(q, k, bias, scale)
    return probs @ v, AttentionCache(q, k, v, probs, scale, bias)


@backward_of(attention, result=heads_shape)
def attention_backward(dy, cache):
    """The forward from the bottom up. Returns (dq, dk, dv), and dbias as a fourth if there was a bias.

    The cache may be that of `attention_dropout` or `tiled_attention`, too: the backward is the one that goes with it.
    """
    q, k, v, probs, scale, bias = cache
    dv = probs.mT @ dy
    dprobs = dy @ v.mT                                    # (B, H, Nq, Nk)
    dscores = softmax_backward.reference(dprobs, SoftmaxCache(probs))
    dq, dk, *dbias = attention_scores_backward(dscores, q, k, bias, scale)
    return dq, dk, dv, *dbias


class AttentionDropoutCache(NamedTuple):
    q: Array        # (B, H, Nq, d)
    k: Array        # (B, H, Nk, d)
    v: Array        # (B, H, Nk, dv)
    probs: Array    # (B, H, Nq, Nk)
    kept: Array     # (B, H, Nq, Nk)  the probabilities after dropout
    dropout: DropoutCache
    scale: float
    bias: Array | None


@operation(arrays="q k v", any_dtype="bias")
def attention_dropout(q, k, v, bias=None, scale=None, rate=0.0, key=None):
    """`attention` with dropout on the probabilities: heads = dropout(probs) v. See `attention` and `dropout`."""
    check_shapes(q, k, v, bias)
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    probs = attention_probs(q, k, bias, scale)
    kept, c_dropout = dropout(probs, rate, key)
    return kept @ v, AttentionDropoutCache(q, k, v, probs, kept, c_dropout, scale, bias)


@backward_of(attention_dropout, result=heads_shape)
def attention_dropout_backward(dy, cache):
    """The forward from the bottom up. Returns (dq, dk, dv), and dbias as a fourth if there was a bias."""
    q, k, v, probs, kept, c_dropout, scale, bias = cache
    dv = kept.mT @ dy
    dprobs = dropout_backward(dy @ v.mT, c_dropout)       # (B, H, Nq, Nk)
    dscores = softmax_backward.reference(dprobs, SoftmaxCache(probs))
    dq, dk, *dbias = attention_scores_backward(dscores, q, k, bias, scale)
    return dq, dk, dv, *dbias


attention_backward.register_cache(AttentionDropoutCache, attention_dropout_backward)


@np.errstate(over="ignore")  # the difference of two scores may be −∞, whose exp is right
def attention_probs(q, k, bias, scale):
    """softmax(scores); zeros for a query that sees no key."""
    scores = attention_scores(q, k, bias, scale)          # (B, H, Nq, Nk)
    if bias is None:
        return softmax(scores)[0]
    where, sees_nothing = array_module(scores).where, scores.real.max(-1, keepdims=True) == -np.inf
    return where(sees_nothing, 0, softmax(where(sees_nothing, 0, scores))[0])


def attention_scores(q, k, bias, scale):
    """scores = q kᵀ · scale + bias."""
    scores = (q * scale) @ k.mT                           # (B, H, Nq, Nk)
    return scores if bias is None else scores + bias


def attention_scores_backward(dscores, q, k, bias, scale):
    """dq = dscores k · scale, dk = dscoresᵀ q · scale and, if there was a bias, dscores summed to its shape."""
    dq = dscores @ k * scale
    dk = dscores.mT @ (q * scale)
    return (dq, dk) if bias is None else (dq, dk, sum_to_shape(dscores, bias.shape))


def check_shapes(q, k, v, bias=None):
    """Raise ValueError unless the arrays go together and the bias, if there is one, broadcasts to the scores."""
    axes = min(q.ndim, k.ndim, v.ndim)
    if axes < 2 or q.shape[-1] != k.shape[-1] or k.shape[:-1] != v.shape[:-1] or q.shape[:-2] != k.shape[:-2]:
        raise ValueError(
            "attention: expected q (B, H, Nq, d), k (B, H, Nk, d) and v (B, H, Nk, dv), "
            f"got {q.shape}, {k.shape} and {v.shape}"
        )
    if not q.shape[-1]:
        raise ValueError(f"attention: expected heads of at least one number, got q {q.shape}")
    if q.size and not k.shape[-2]:
        raise ValueError(f"attention: expected at least one key, got k {k.shape}")
    if bias is None:
        return
    scores = (*q.shape[:-1], k.shape[-2])
    if bias.ndim > len(scores) or any(b not in (1, s) for b, s in zip(reversed(bias.shape), reversed(scores))):
        raise ValueError(f"attention: the bias {bias.shape} doesn't broadcast to the scores {scores}")
    if bias.dtype.kind in "biu":
        raise ValueError(
            f"attention: expected a bias of floating-point numbers, got {bias.dtype}; "
            "of a mask make one by where(mask, 0.0, -inf)"
        )
