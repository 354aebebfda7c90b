"""Attention over long sequences by products of tiles, with the scores of one tile at a time in memory.

A tile is made of some queries and some keys of all samples and heads (of some samples, where there are very many), so
that a GPU has enough to do. Its scores take `TILE_BYTES` at most, as does their gradient in the backward; in low
precision what is made of either takes half as much again. Scores, their sums, and everything that is accumulated from
tile to tile is float32, in an order that is always the same.
"""

from math import isqrt

from tinyvit.backend import array_module
from tinyvit.functional.attention import check_shapes
from tinyvit.functional.dispatch import LOW_PRECISION
from tinyvit.functional.sums import sum_to_shape
from tinyvit.functional.tiled_attention import (
    TILE,
    TiledAttentionCache,
    check_tile,
    probabilities,
    seen_of,
    stretches,
    tiled_attention,
    tiled_attention_backward,
)
from tinyvit.kernels.cuda.attention import are_plain, as_operand, padded_rows
from tinyvit.kernels.cuda.cast import cast
from tinyvit.kernels.cuda.products import multiply_batches
from tinyvit.kernels.cuda.source import KINDS, TYPED, Source, blocks, contiguous, type_of
from tinyvit.kernels.cuda.through_float32 import backward_through_float32, forward_through_float32

SOURCE = Source("tiled_attention.cu", TYPED)
BLOCK = 256
ROWS = BLOCK // 32    # of a block: a warp each
TILE_BYTES = 1 << 28  # of float32 scores
SMALLEST = 64         # tokens: a product of less leaves most of a GPU's core idle


class CudaTiledAttentionCache(TiledAttentionCache):
    """The plain text's cache, with `largest` and `total` in float32 whatever the dtype of the rest."""

    @property
    def probs(self):
        """(B, H, Nq, Nk), float32; computed, all of it, whenever somebody looks."""
        q, k, bias = (None if x is None else cast(x, "float32") for x in (self.q, self.k, self.bias))
        return probabilities(self._replace(q=q, k=k, bias=bias), *[slice(None)] * 3)


def tiled_attention_cuda(q, k, v, bias=None, scale=None, tile=TILE):
    if not are_plain(q, k, v, bias, scale):
        plain = tiled_attention.reference if q.dtype == "float32" else reference_through_float32
        return plain(q, k, v, bias, scale, tile)
    check_shapes(q, k, v, bias)
    check_tile(q, tile)
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    xp, (B, H, Nq, _), (Nk, width) = array_module(q), q.shape, v.shape[2:]
    y = xp.empty((B, Nq, H, width), q.dtype).transpose(0, 2, 1, 3)
    largest, total = xp.empty((B, H, Nq, 1), "float32"), xp.empty((B, H, Nq, 1), "float32")
    cache = CudaTiledAttentionCache(q, k, v, y, largest, total, scale, tile, bias)
    q, k, v = map(as_operand, (q, k, v))
    samples, side = sizes_of_tile(B, H, tile)
    for part in stretches(B, samples):
        for rows in stretches(Nq, side):
            to = y[part, :, rows]
            heads = xp.empty(to.shape, "float32")
            of_rows = heads.size // width, to.shape[2], Nq
            for columns in stretches(Nk, side):
                scores = scores_of_tile(q, k, bias, scale, part, rows, columns)
                exps = scores if q.dtype == "float32" else padded_rows(scores.shape, q.dtype, q)
                first = columns.start == 0
                launch(
                    "tiled_forward", of_rows[0], q, scores, exps, largest[part, :, rows], total[part, :, rows], heads,
                    of_rows[0], scores.shape[3], scores.strides[2] // 4, *of_rows[1:], width, int(first),
                )  # fmt: skip
                multiply_batches(exps, v[part, :, columns], heads, beta=0.0 if first else 1.0)
            launch(
                "tiled_heads", of_rows[0], q, heads, total[part, :, rows], to, of_rows[0], width, *of_rows[1:], H,
                *strides_of(to),
            )  # fmt: skip
    return y, cache


def tiled_attention_backward_cuda(dy, cache):
    """As `functional.tiled_attention_backward`; the bias has a float32 gradient, whatever its dtype."""
    q, k, v, y, largest, total, scale, tile, bias = cache
    if not are_plain(q, k, v, bias, scale) or not dy.dtype == q.dtype == y.dtype or largest.dtype != "float32":
        return other_backward(dy, cache)
    xp, (B, H, Nq, _), Nk = array_module(q), q.shape, k.shape[2]
    dq, dk, dv, finish = accumulators(q, k, v)
    dy, q, k, v = map(as_operand, (rows_contiguous(dy), q, k, v))
    y = rows_contiguous(y)
    sums = xp.empty((B, H, Nq), "float32")
    launch("tiled_sums", sums.size, q, dy, y, sums, sums.size, y.shape[3], Nq, H, *strides_of(dy), *strides_of(y))
    dbias = None if bias is None else xp.zeros(bias.shape, "float64")  # made of one part after the other, as on a CPU
    samples, side = sizes_of_tile(B, H, tile)
    for part in stretches(B, samples):
        for rows in stretches(Nq, side):
            q_part, dy_part = q[part, :, rows], dy[part, :, rows]
            for columns in stretches(Nk, side):
                k_part, v_part = k[part, :, columns], v[part, :, columns]
                scores = scores_of_tile(q, k, bias, scale, part, rows, columns)
                dprobs = multiply_batches(dy_part, v_part.mT, padded_rows(scores.shape, "float32", q))
                probs, dscores = scores, dprobs
                if q.dtype != "float32":
                    probs, dscores = padded_rows(scores.shape, q.dtype, q), padded_rows(scores.shape, q.dtype, q)
                count = scores.size // scores.shape[3]
                launch(
                    "tiled_backward", count, q, scores, dprobs, probs, dscores, largest[part, :, rows],
                    total[part, :, rows], sums[part, :, rows], count, scores.shape[3], scores.strides[2] // 4,
                    scores.shape[2], Nq,
                )  # fmt: skip
                later_rows, later_columns = float(rows.start > 0), float(columns.start > 0)
                multiply_batches(probs.mT, dy_part, dv[part, :, columns], beta=later_rows)
                multiply_batches(dscores.mT, q_part, dk[part, :, columns], alpha=scale, beta=later_rows)
                multiply_batches(dscores, k_part, dq[part, :, rows], alpha=scale, beta=later_columns)
                if bias is not None:
                    seen = seen_of(bias, part, rows, columns)
                    dbias[seen] += sum_to_shape(cast(dscores, "float32"), dbias[seen].shape)
    return finish() if bias is None else (*finish(), dbias.astype("float32"))


def other_backward(dy, cache):
    """What the forward left to the plain text; a cache in float32, then."""
    dtype = str(cache.q.dtype)
    if dtype in LOW_PRECISION:
        raise ValueError(f"tiled_attention_backward: expected dy in {dtype}, like the queries, got {dy.dtype}")
    plain = tiled_attention_backward.reference
    return backward_through_float32(plain, inputs=3)(dy, cache) if str(dy.dtype) in LOW_PRECISION else plain(dy, cache)


def sizes_of_tile(B, H, tile):
    """How many samples go into a tile, and how many queries and keys: as many as the caller says, if it says so."""
    side = tile
    if tile == TILE:
        side = max(SMALLEST, isqrt(TILE_BYTES // 4 // (B * H)) // SMALLEST * SMALLEST)
    return min(B, max(1, TILE_BYTES // 4 // (H * side * side))), side


def scores_of_tile(q, k, bias, scale, part, rows, columns):
    """The scores of some queries with some keys, float32."""
    q, k = q[part, :, rows], k[part, :, columns]
    scores = padded_rows((*q.shape[:3], k.shape[2]), "float32", q)
    if bias is not None:
        scores[...] = cast(bias[seen_of(bias, part, rows, columns)], "float32")
    return multiply_batches(q, k.mT, scores, alpha=scale, beta=0.0 if bias is None else 1.0)


def accumulators(q, k, v):
    """Float32 arrays for dq, dk and dv, side by side where they fit, and what gives them in the dtype of q."""
    xp = array_module(q)
    if q.shape == k.shape == v.shape:
        B, H, N, d = q.shape
        joined = xp.empty((B, N, 3, H, d), "float32")
        return *joined.transpose(2, 0, 3, 1, 4), lambda: tuple(cast(joined, q.dtype).transpose(2, 0, 3, 1, 4))
    gradients = [xp.empty(x.shape, "float32") for x in (q, k, v)]
    return *gradients, lambda: tuple(cast(gradient, q.dtype) for gradient in gradients)


def rows_contiguous(x):
    return x if x.strides[-1] == x.itemsize else contiguous(x)


def strides_of(x):
    """From one sample, head and token to the next, in numbers."""
    return tuple(stride // x.itemsize for stride in x.strides[:3])


def launch(name, rows, like, *arguments):
    SOURCE.launch(name, blocks(rows, ROWS), BLOCK, *arguments, T=type_of(like))


reference_through_float32 = forward_through_float32(tiled_attention.reference)
for kind in KINDS:
    tiled_attention.register(kind, tiled_attention_cuda)
    tiled_attention_backward.register(kind, tiled_attention_backward_cuda)
