"""Attention, head by head and a tile of queries at a time: scores never leave the core's cache, and none are kept.

As in `functional.tiled_attention`, but a tile has whole rows of scores, so that each row's largest number and sum are
known at once. Both are kept for the backward, in which the probabilities are computed anew.
"""

from typing import NamedTuple

import numpy as np
from numba import types

from tinyvit.backend import Array
from tinyvit.functional.attention import AttentionCache, attention, attention_backward, attention_scores, check_shapes
from tinyvit.functional.tiled_attention import TILE, check_tile, tiled_attention, tiled_attention_backward
from tinyvit.kernels.attention import are_plain
from tinyvit.kernels.fast.blas import AS_IT_IS, SGEMM, TRANSPOSED, gemm
from tinyvit.kernels.fast.compiled import ANY_ORDER, FLOAT, compiled, inlined
from tinyvit.kernels.fast.exp import F, exp
from tinyvit.kernels.fast.softmax import softmax_row

SCORES = 1 << 18  # numbers in a tile: 1 MiB, of which the backward needs two
FEWEST = 128      # queries in a tile; fewer make products too thin
ZERO, ONE = F(0.0), F(1.0)
NUMBER = 4        # bytes
HEADS = types.Array(FLOAT, 4, "A", readonly=True)
NEW_HEADS = types.Array(FLOAT, 4, "A")
STATISTICS = types.Array(FLOAT, 4, "C", readonly=True)
NEW_STATISTICS = types.Array(FLOAT, 4, "C")


class FastAttentionCache(NamedTuple):
    q: Array           # (B, H, Nq, d)
    k: Array           # (B, H, Nk, d)
    v: Array           # (B, H, Nk, dv)
    statistics: Array  # (B, H, Nq, 2)  of each row of scores: the largest, and Σ exp(scores − largest)
    scale: float

    @property
    def probs(self):
        """How much each query takes from each key (B, H, Nq, Nk), computed anew."""
        scores = attention_scores(self.q, self.k, None, self.scale)
        return np.exp(scores - self.statistics[..., :1]) / self.statistics[..., 1:]


@inlined()
def at(x, b, h, start):
    """The address of x[b, h, start]."""
    return x.ctypes.data + b * x.strides[0] + h * x.strides[1] + start * x.strides[2]


@inlined()
def ld(x):
    """Numbers from one row of x to the next."""
    return x.strides[2] // NUMBER


@inlined(math=ANY_ORDER)
def softmax_backward_row(scores, dprobs, largest, total):
    """Scores become probabilities p, and their gradient that of the scores: p (dp − Σ dp p)."""
    along, share = ZERO, ONE / total
    for j in range(scores.size):
        scores[j] = exp(scores[j] - largest) * share
        along += scores[j] * dprobs[j]
    for j in range(scores.size):
        dprobs[j] = scores[j] * (dprobs[j] - along)


@compiled(types.int64, HEADS, HEADS, HEADS, FLOAT, types.int64, NEW_HEADS, NEW_STATISTICS, math=ANY_ORDER)
def attend(sgemm, q, k, v, scale, tile, y, statistics):
    """y = softmax(q kᵀ · scale) v, and the statistics of the rows."""
    B, H, Nq, d = q.shape
    Nk, dv = v.shape[2:]
    scores = np.empty((tile, Nk), np.float32)
    for b in range(B):
        for h in range(H):
            for start in range(0, Nq, tile):
                count = min(tile, Nq - start)
                gemm(sgemm, AS_IT_IS, TRANSPOSED, count, Nk, d,
                     scale, at(q, b, h, start), ld(q), at(k, b, h, 0), ld(k), ZERO, scores.ctypes.data, Nk)
                for r in range(count):
                    largest, total = softmax_row(scores[r])
                    statistics[b, h, start + r, 0], statistics[b, h, start + r, 1] = largest, total
                gemm(sgemm, AS_IT_IS, AS_IT_IS, count, dv, Nk,
                     ONE, scores.ctypes.data, Nk, at(v, b, h, 0), ld(v), ZERO, at(y, b, h, start), ld(y))  # fmt: skip


@compiled(types.int64, *[HEADS] * 4, STATISTICS, FLOAT, types.int64, *[NEW_HEADS] * 3, math=ANY_ORDER)
def attend_backward(sgemm, dy, q, k, v, statistics, scale, tile, dq, dk, dv):
    """For p = softmax(q kᵀ · scale), ds = p (dy vᵀ − Σ dy vᵀ p), dq = ds k · scale, dk = dsᵀ q · scale, dv = pᵀ dy."""
    B, H, Nq, d = q.shape
    Nk, width = v.shape[2:]
    probs, dscores = np.empty((tile, Nk), np.float32), np.empty((tile, Nk), np.float32)
    p, ds = probs.ctypes.data, dscores.ctypes.data
    for b in range(B):
        for h in range(H):
            for start in range(0, Nq, tile):
                count, more = min(tile, Nq - start), ONE if start else ZERO
                gemm(sgemm, AS_IT_IS, TRANSPOSED, count, Nk, d,
                     scale, at(q, b, h, start), ld(q), at(k, b, h, 0), ld(k), ZERO, p, Nk)
                gemm(sgemm, AS_IT_IS, TRANSPOSED, count, Nk, width,
                     ONE, at(dy, b, h, start), ld(dy), at(v, b, h, 0), ld(v), ZERO, ds, Nk)
                for r in range(count):
                    largest, total = statistics[b, h, start + r, 0], statistics[b, h, start + r, 1]
                    softmax_backward_row(probs[r], dscores[r], largest, total)
                gemm(sgemm, AS_IT_IS, AS_IT_IS, count, d, Nk,
                     scale, ds, Nk, at(k, b, h, 0), ld(k), ZERO, at(dq, b, h, start), ld(dq))
                gemm(sgemm, TRANSPOSED, AS_IT_IS, Nk, d, count,
                     scale, ds, Nk, at(q, b, h, start), ld(q), more, at(dk, b, h, 0), ld(dk))
                gemm(sgemm, TRANSPOSED, AS_IT_IS, Nk, width, count,
                     ONE, p, Nk, at(dy, b, h, start), ld(dy), more, at(dv, b, h, 0), ld(dv))  # fmt: skip


def tile_for(Nq, Nk):
    """Queries in a tile."""
    return min(Nq, max(FEWEST, SCORES // Nk))


def in_rows(x):
    """x (B, H, N, d) as BLAS wants it: the numbers of a row side by side, and its rows one after the other."""
    fits = x.strides[3] == NUMBER and x.strides[2] % NUMBER == 0 and x.strides[2] >= NUMBER * x.shape[3]
    return x if fits and x.flags.aligned else x.copy()


def attention_fast(q, k, v, bias=None, scale=None):
    if bias is not None or not are_plain(q, k, v, scale):
        return attention.reference(q, k, v, bias, scale)
    check_shapes(q, k, v)
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    q, k, v = map(in_rows, (q, k, v))
    B, H, Nq, _ = q.shape
    y = np.empty((B, Nq, H, v.shape[-1]), "float32").transpose(0, 2, 1, 3)  # heads side by side, as what follows wants
    statistics = np.empty((B, H, Nq, 2), "float32")
    attend(SGEMM, q, k, v, scale, tile_for(Nq, k.shape[2]), y, statistics)
    return y, FastAttentionCache(q, k, v, statistics, scale)


def attention_backward_fast(dy, cache):
    q, k, v, statistics, scale = cache
    if dy.dtype != q.dtype:
        return attention_backward.reference(dy, AttentionCache(q, k, v, cache.probs, scale, None))
    (B, H, Nq, d), (Nk, dv) = q.shape, v.shape[2:]
    if (Nq, d) == (Nk, dv):  # one array, as the layer that they came from wants it
        gradients = np.empty((B, Nq, 3, H, d), "float32").transpose(2, 0, 3, 1, 4)
    else:
        gradients = [np.empty(x.shape, "float32") for x in (q, k, v)]
    attend_backward(SGEMM, in_rows(dy), q, k, v, statistics, scale, tile_for(Nq, Nk), *gradients)
    return tuple(gradients)


def tiled_attention_fast(q, k, v, bias=None, scale=None, tile=TILE):
    """All of `attention_fast` is tiled already, in tiles of its own."""
    if bias is not None or not are_plain(q, k, v, scale):
        return tiled_attention.reference(q, k, v, bias, scale, tile)
    check_tile(q, tile)
    return attention_fast(q, k, v, bias, scale)


attention.register(("numpy", "float32"), attention_fast, "fast")
attention_backward.register_cache(FastAttentionCache, attention_backward_fast)
tiled_attention.register(("numpy", "float32"), tiled_attention_fast, "fast")
tiled_attention_backward.register_cache(FastAttentionCache, attention_backward_fast)
