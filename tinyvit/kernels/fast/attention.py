"""Attention, head by head and a tile of queries at a time: scores never leave the core's cache, and none are kept.

As in `functional.tiled_attention`, but a tile has whole rows of scores, so that each row's maximum and sum are known at
once. Both are kept for the backward, which computes the probabilities again.
"""

from functools import partial
from typing import NamedTuple

import numpy as np

from tinyvit.arrays import Array
from tinyvit.functional.attention import AttentionCache, attention, attention_backward, attention_scores, check_shapes
from tinyvit.functional.heads import empty_gradients
from tinyvit.functional.tiled_attention import TILE, check_tile, tiled_attention, tiled_attention_backward
from tinyvit.kernels.attention import is_supported
from tinyvit.kernels.fast.blas import AS_IT_IS, SGEMM, TRANSPOSED, gemm
from tinyvit.kernels.fast.compiled import (
    ANY_ORDER,
    FLOAT,
    INDEX,
    INPUT,
    OUTPUT,
    array,
    as_contiguous,
    inline,
    jit,
)
from tinyvit.kernels.fast.exp import F, exp
from tinyvit.kernels.fast.softmax import softmax_row

SCORES = 1 << 18   # numbers in a tile: 1 MiB, of which the backward needs two
MIN_TILE_QUERIES = 128       # queries in a tile; fewer make products too thin
MAX_BLAS_INT = np.iinfo("int32").max  # BLAS counts in 32 bits
ZERO, ONE, MASKED = F(0.0), F(1.0), F(-np.inf)
ITEMSIZE = 4       # bytes
QUERIES, KEYS, VALUES, RESULT = "B H Nq d", "B H Nk d", "B H Nk dv", "B H Nq dv"
HEADS = partial(array, layout="A", readonly=True)
NEW_HEADS = partial(array, layout="A")


class FastAttentionCache(NamedTuple):
    """The arrays for the backward; the other fields of `AttentionCache` and `TiledAttentionCache` are properties."""

    q: Array           # (B, H, Nq, d)
    k: Array           # (B, H, Nk, d)
    v: Array           # (B, H, Nk, dv)
    statistics: Array  # (B, H, Nq, 2)  of each row of scores: the largest, and Σ exp(scores − largest)
    scale: float
    bias: Array | None

    @property
    def probs(self):
        """How much each query takes from each key (B, H, Nq, Nk), computed when asked for."""
        scores = attention_scores(self.q, self.k, self.bias, self.scale)
        return np.exp(scores - self.largest) / self.total

    @property
    def y(self):
        return self.probs @ self.v

    @property
    def largest(self):
        return self.statistics[..., :1]

    @property
    def total(self):
        return self.statistics[..., 1:]

    @property
    def tile(self):
        return tile_for(self.q.shape[2], self.k.shape[2])


@inline()
def at(x, b, h, start):
    """The address of x[b, h, start]."""
    return x.ctypes.data + b * x.strides[0] + h * x.strides[1] + start * x.strides[2]


@inline()
def ld(x):
    """The leading dimension of x: numbers from one row to the next."""
    return x.strides[2] // ITEMSIZE


@inline()
def add_row(x, bias):
    """x += bias, a row of the same length or a single number."""
    for j in range(x.size):
        x[j] += bias[j if bias.size > 1 else 0]


@inline()
def is_masked(bias):
    """Whether a row of a bias masks every key."""
    masked = True
    for j in range(bias.size):
        masked = masked and bias[j] == MASKED
    return masked


@inline(math=ANY_ORDER)
def add_to_row(total, x):
    """total += x, or the sum of x where it is a single number; in double precision."""
    if total.size == x.size:
        for j in range(x.size):
            total[j] += x[j]
    else:
        for j in range(x.size):
            total[0] += x[j]


@inline(math=ANY_ORDER)
def softmax_backward_row(scores, dprobs, largest, total):
    """Scores become probabilities p, and their gradient that of the scores: p (dp − Σ dp p)."""
    dot, share = ZERO, ONE / total
    for j in range(scores.size):
        scores[j] = exp(scores[j] - largest) * share
        dot += scores[j] * dprobs[j]
    for j in range(scores.size):
        dprobs[j] = scores[j] * (dprobs[j] - dot)


# A bias is (rows, 1 or Nk). For query i in head h of sample b it is row b · sample + h · head + i · query; these steps
# are 0 along what the bias is broadcast over. Without a bias there are no rows.


@jit(
    INDEX, HEADS(QUERIES), HEADS(KEYS), HEADS(VALUES), INPUT("bias_rows bias_columns"), *[INDEX] * 3, FLOAT, INDEX,
    NEW_HEADS(RESULT), OUTPUT("B H Nq 2"), math=ANY_ORDER,
)  # fmt: skip
def attend(sgemm, q, k, v, bias, sample, head, query, scale, tile, y, statistics):
    """y = softmax(q kᵀ · scale + bias) v, and the statistics of the rows."""
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
                    row = b * sample + h * head + (start + r) * query
                    if bias.size:
                        add_row(scores[r], bias[row])
                    largest, total = softmax_row(scores[r])
                    if bias.size and largest == MASKED and is_masked(bias[row]):
                        scores[r, :] = ZERO
                        largest, total = ZERO, ONE
                    statistics[b, h, start + r, 0], statistics[b, h, start + r, 1] = largest, total
                gemm(sgemm, AS_IT_IS, AS_IT_IS, count, dv, Nk,
                     ONE, scores.ctypes.data, Nk, at(v, b, h, 0), ld(v), ZERO, at(y, b, h, start), ld(y))  # fmt: skip


@jit(
    INDEX, HEADS(RESULT), HEADS(QUERIES), HEADS(KEYS), HEADS(VALUES), INPUT("bias_rows bias_columns"), *[INDEX] * 3,
    INPUT("B H Nq 2"), FLOAT, INDEX, NEW_HEADS(QUERIES), NEW_HEADS(KEYS), NEW_HEADS(VALUES),
    OUTPUT("bias_rows bias_columns"), math=ANY_ORDER,
)  # fmt: skip
def attend_backward(sgemm, dy, q, k, v, bias, sample, head, query, statistics, scale, tile, dq, dk, dv, dbias):
    """ds = p (dy vᵀ − Σ dy vᵀ p) for probabilities p, dq = ds k · scale, dk = dsᵀ q · scale, dv = pᵀ dy, dbias = Σ ds.

    dbias is summed in double precision, sample by sample if it has rows for each of them.
    """
    B, H, Nq, d = q.shape
    Nk, width = v.shape[2:]
    probs, scratch = np.empty((tile, Nk), np.float32), np.empty((tile, Nk), np.float32)
    as_scores = dbias.size == B * H * Nq * Nk  # nothing is to be summed: dbias is dscores
    total = np.zeros((0 if as_scores else sample if sample else len(dbias), dbias.shape[1]))
    for b in range(B):
        for h in range(H):
            for start in range(0, Nq, tile):
                count, beta = min(tile, Nq - start), ONE if start else ZERO
                dscores = dbias[(b * H + h) * Nq + start :] if as_scores else scratch
                p, ds = probs.ctypes.data, dscores.ctypes.data
                gemm(sgemm, AS_IT_IS, TRANSPOSED, count, Nk, d,
                     scale, at(q, b, h, start), ld(q), at(k, b, h, 0), ld(k), ZERO, p, Nk)
                gemm(sgemm, AS_IT_IS, TRANSPOSED, count, Nk, width,
                     ONE, at(dy, b, h, start), ld(dy), at(v, b, h, 0), ld(v), ZERO, ds, Nk)
                for r in range(count):
                    row = b * sample + h * head + (start + r) * query
                    if bias.size:
                        add_row(probs[r], bias[row])
                    softmax_backward_row(
                        probs[r], dscores[r], statistics[b, h, start + r, 0], statistics[b, h, start + r, 1]
                    )
                    if bias.size and not as_scores:
                        add_to_row(total[row - b * sample], dscores[r])
                gemm(sgemm, AS_IT_IS, AS_IT_IS, count, d, Nk,
                     scale, ds, Nk, at(k, b, h, 0), ld(k), ZERO, at(dq, b, h, start), ld(dq))
                gemm(sgemm, TRANSPOSED, AS_IT_IS, Nk, d, count,
                     scale, ds, Nk, at(q, b, h, start), ld(q), beta, at(dk, b, h, 0), ld(dk))
                gemm(sgemm, TRANSPOSED, AS_IT_IS, Nk, width, count,
                     ONE, p, Nk, at(dy, b, h, start), ld(dy), beta, at(dv, b, h, 0), ld(dv))  # fmt: skip
        if sample and not as_scores:
            dbias[b * sample : (b + 1) * sample] = total
            total[:] = 0.0
    if not (sample or as_scores):
        dbias[:] = total


def tile_for(Nq, Nk):
    """Queries in a tile."""
    return min(Nq, max(MIN_TILE_QUERIES, SCORES // Nk))


def in_rows(x):
    """x (B, H, N, d) as BLAS wants it: the numbers of a row side by side, and its rows one after the other."""
    stride = x.strides[2]
    fits = x.strides[3] == ITEMSIZE and stride % ITEMSIZE == 0
    fits = fits and ITEMSIZE * x.shape[3] <= stride <= ITEMSIZE * MAX_BLAS_INT
    return x if fits and x.flags.aligned else x.copy()


def bias_rows(bias):
    """A bias as the kernels take it: its rows, and the step in them from one sample, head and query to the next."""
    if bias is None:
        return np.empty((0, 0), "float32"), 0, 0, 0
    B, H, Nq, Nk = (1,) * (4 - bias.ndim) + bias.shape
    steps = (step if side > 1 else 0 for side, step in ((B, H * Nq), (H, Nq), (Nq, 1)))
    return as_contiguous(bias).reshape(-1, Nk), *steps


def attention_fast(q, k, v, bias=None, scale=None, reference=attention.reference):
    if not is_supported(q, k, v, bias, scale):
        return reference(q, k, v, bias, scale)
    check_shapes(q, k, v, bias)
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    q, k, v = map(in_rows, (q, k, v))
    B, H, Nq, _ = q.shape
    y = np.empty((B, Nq, H, v.shape[-1]), "float32").transpose(0, 2, 1, 3)  # heads side by side, for the next layer
    statistics = np.empty((B, H, Nq, 2), "float32")
    attend(SGEMM, q, k, v, *bias_rows(bias), scale, tile_for(Nq, k.shape[2]), y, statistics)
    if not np.isfinite(statistics).all():
        # NaN or infinity. BLAS multiplies by the scale last, so that q kᵀ may be infinite where q kᵀ · scale is not.
        return reference(q, k, v, bias, scale)
    return y, FastAttentionCache(q, k, v, statistics, scale, bias)


def attention_backward_fast(dy, cache):
    q, k, v, statistics, scale, bias = cache
    check_shapes(q, k, v, bias)
    if dy.dtype != q.dtype:
        return attention_backward.reference(dy, AttentionCache(q, k, v, cache.probs, scale, bias))
    q, k, v = map(in_rows, (q, k, v))
    gradients = empty_gradients(q, k, v)
    rows, *steps = bias_rows(bias)
    dbias = np.empty(rows.shape, "float32")
    tile = tile_for(q.shape[2], k.shape[2])
    attend_backward(SGEMM, in_rows(dy), q, k, v, rows, *steps, statistics, scale, tile, *gradients, dbias)
    return gradients if bias is None else gradients.with_bias(dbias.reshape(bias.shape))


def tiled_attention_fast(q, k, v, bias=None, scale=None, tile=TILE):
    """`attention_fast`, which is tiled already, in tiles of its own."""
    check_tile(q, tile)
    return attention_fast(q, k, v, bias, scale, partial(tiled_attention.reference, tile=tile))


attention.register(("numpy", "float32"), attention_fast, "fast")
attention_backward.register_cache(FastAttentionCache, attention_backward_fast)
tiled_attention.register(("numpy", "float32"), tiled_attention_fast, "fast")
tiled_attention_backward.register_cache(FastAttentionCache, attention_backward_fast)
