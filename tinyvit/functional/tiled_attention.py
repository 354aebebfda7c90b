"""Scaled dot-product attention that never holds the scores of all queries with all keys at once."""

from itertools import product
from typing import NamedTuple

import numpy as np

from tinyvit.arrays import Array, array_module
from tinyvit.dispatch import backward_of, operation
from tinyvit.functional.attention import (
    attention_backward,
    attention_scores,
    attention_scores_backward,
    check_shapes,
    heads_shape,
)
from tinyvit.functional.chunks import chunks
from tinyvit.functional.heads import empty_gradients

TILE = 256  # tokens; a head's tile of scores, 256 kB in float32, stays in a core's cache
# The number of tokens from which on attention is tiled. Computing the scores again in the backward then takes no longer
# than moving them through memory (equal on a CPU from about 600 tokens on), and a step needs half of the memory.
MIN_TILED_TOKENS = 1024


class TiledAttentionCache(NamedTuple):
    q: Array        # (B, H, Nq, d)
    k: Array        # (B, H, Nk, d)
    v: Array        # (B, H, Nk, dv)
    y: Array        # (B, H, Nq, dv)
    largest: Array  # (B, H, Nq, 1)  the largest score of each query, real
    total: Array    # (B, H, Nq, 1)  Σ exp(scores − largest)
    scale: float
    tile: int
    bias: Array | None

    @property
    def probs(self):
        """(B, H, Nq, Nk): how much each query takes from each key; computed, all of it, when asked for."""
        return probabilities(self, *[slice(None)] * 3)


@operation(arrays="q k v", any_dtype="bias")
def tiled_attention(q, k, v, bias=None, scale=None, tile=TILE):
    """`attention`, for `tile` queries and `tile` keys at a time, in memory that grows linearly with both.

    A softmax needs the row's maximum and its sum of exponentials before the last key was seen; both are updated from
    tile to tile. When the running maximum grows, what was summed so far is scaled down to it:

        m' = max(m, max scores)   l' = l · exp(m − m') + Σ exp(scores − m')   a' = a · exp(m − m') + exp(scores − m') v

    and heads = a / l after the last key. Below, m, l and a are `largest`, `total` and `heads`.
    Raises ValueError for a tile of no tokens and for arrays without four axes; for everything else see `attention`.

    Milakov & Gimelshein 2018, "Online normalizer calculation for softmax", algorithm 3; Rabe & Staats 2021,
    "Self-attention does not need O(n²) memory"; Dao et al. 2022, "FlashAttention", algorithms 1 and 4.
    """
    check_shapes(q, k, v, bias)
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    check_tile(q, tile)
    xp = array_module(q)
    dtype = np.result_type(*(x.dtype for x in (q, k, v, bias) if x is not None))
    y = xp.empty((*q.shape[:-1], v.shape[-1]), dtype)
    all_total = xp.empty((*q.shape[:-1], 1), dtype)
    all_largest = xp.empty_like(all_total.real)
    for samples, rows in parts(q, tile):
        # From the lowest finite number, not −∞: where a whole tile is masked, −∞ − (−∞) would be NaN.
        largest, total, heads = float(np.finfo(dtype).min), 0.0, 0.0
        for columns in chunks(k.shape[2], tile):
            scores = scores_of_tile(q, k, bias, scale, samples, rows, columns)         # (·, H, tile, tile)
            before, largest = largest, xp.maximum(largest, scores.real.max(-1, keepdims=True))
            with np.errstate(over="ignore"):  # the difference of two scores may be −∞, whose exp is right
                scaled_down = xp.exp(before - largest)                                 # (·, H, tile, 1)
                exps = xp.exp(scores - largest)
            total = total * scaled_down + exps.sum(-1, keepdims=True)
            heads = heads * scaled_down + exps @ v[samples, :, columns]                # (·, H, tile, dv)
        total += total == 0                                                            # queries that see no key
        y[samples, :, rows] = heads / total
        all_largest[samples, :, rows], all_total[samples, :, rows] = largest, total
    return y, TiledAttentionCache(q, k, v, y, all_largest, all_total, scale, tile, bias)


@backward_of(tiled_attention, result=heads_shape)
def tiled_attention_backward(dy, cache):
    """Returns (dq, dk, dv), and dbias as a fourth if there was a bias; computes the probabilities again.

    dscores = probs (dprobs − Σⱼ dprobsⱼ probsⱼ) needs a sum over all keys before the last was seen. As dprobs = dy vᵀ
    and y = probs v, that sum is Σ dy · y over the width of a head.
    """
    q, k, v, y, _, _, scale, tile, bias = cache
    xp, dtype = array_module(dy), np.result_type(y.dtype, dy.dtype)
    dq, dk, dv = gradients = empty_gradients(q, k, v, dtype)
    for gradient in gradients:
        gradient[...] = 0
    if bias is not None:  # in float64 where it is summed over parts
        in_one_part = bias.shape == (*q.shape[:-1], k.shape[2])
        dbias = xp.zeros(bias.shape, dtype if in_one_part else np.result_type(dtype, "float64"))
    sums = (dy * y).sum(-1, keepdims=True)                                             # (B, H, Nq, 1)
    for samples, rows in parts(q, tile):
        for columns in chunks(k.shape[2], tile):
            probs = probabilities(cache, samples, rows, columns)                       # (·, H, tile, tile)
            dv[samples, :, columns] += probs.mT @ dy[samples, :, rows]
            dprobs = dy[samples, :, rows] @ v[samples, :, columns].mT
            dscores = probs * (dprobs - sums[samples, :, rows])
            bias_part = bias_of_tile(bias, samples, rows, columns)
            dq_part, dk_part, *dbias_part = attention_scores_backward(
                dscores, q[samples, :, rows], k[samples, :, columns], bias_part, scale
            )
            dq[samples, :, rows] += dq_part
            dk[samples, :, columns] += dk_part
            if bias is not None:
                part = bias_of_tile(dbias, samples, rows, columns)
                part += dbias_part[0]
    return gradients if bias is None else gradients.with_bias(dbias.astype(dtype, copy=False))


attention_backward.register_cache(TiledAttentionCache, tiled_attention_backward)


def check_tile(q, tile):
    if tile < 1:
        raise ValueError(f"tiled_attention: expected a tile of at least 1 token, got {tile}")
    if q.ndim != 4:
        raise ValueError(f"tiled_attention: expected q (B, H, Nq, d), got {q.shape}")


def parts(q, tile):
    """The parts that the queries are worked through in: slices of the samples and of the tokens.

    On a CPU the tiles of one sample stay in the cache; a GPU has enough to do only with those of all samples.
    """
    samples = 1 if array_module(q) is np else max(1, len(q))
    return product(chunks(len(q), samples), chunks(q.shape[2], tile))


def scores_of_tile(q, k, bias, scale, samples, rows, columns):
    """The scores of some queries with some keys, in all heads."""
    bias = bias_of_tile(bias, samples, rows, columns)
    return attention_scores(q[samples, :, rows], k[samples, :, columns], bias, scale)


@np.errstate(over="ignore")
def probabilities(cache, samples, rows, columns):
    """The probabilities of some queries and some keys, from the statistics of the whole rows."""
    scores = scores_of_tile(cache.q, cache.k, cache.bias, cache.scale, samples, rows, columns)
    exps = array_module(scores).exp(scores - cache.largest[samples, :, rows])
    return exps / cache.total[samples, :, rows]


def bias_of_tile(bias, samples, rows, columns):
    """A view of the part of a bias that is added to a tile of the scores: all of an axis of length 1."""
    if bias is None:
        return None
    from_the_last = zip(reversed(bias.shape), (columns, rows, slice(None), samples))
    return bias[(..., *reversed([where if side > 1 else slice(None) for side, where in from_the_last]))]
