"""Attention over long sequences by products of tiles, with the scores of one tile at a time in memory.

A tile is made of some queries and some keys of all samples and heads (of some samples, where there are very many), so
that a GPU has enough to do. Its scores take `TILE_BYTES` at most, as does their gradient in the backward; in low
precision what is made of either takes half as much again. Scores, their sums, and all that is accumulated from tile to
tile are float32 (the gradient of a bias: float64), in an order that is always the same. A bias is added where the
exponentials are computed.
"""

from math import isqrt

from tinyvit.backend import array_module
from tinyvit.functional.attention import attention_backward, check_shapes
from tinyvit.functional.chunks import chunks
from tinyvit.functional.heads import HeadGradients, empty_gradients, joined_gradients
from tinyvit.functional.tiled_attention import (
    TILE,
    TiledAttentionCache,
    bias_of_tile,
    check_tile,
    probabilities,
    tiled_attention,
    tiled_attention_backward,
)
from tinyvit.kernels.cuda.attention import as_operand, padded_rows, reference_backward, supported
from tinyvit.kernels.cuda.attention_bias import bias_gradient, strided_bias
from tinyvit.kernels.cuda.cast import cast
from tinyvit.kernels.cuda.products import multiply_batches
from tinyvit.kernels.cuda.source import KINDS, TYPED, Source, blocks, contiguous, type_of
from tinyvit.kernels.cuda.through_float32 import forward_through_float32

SOURCE = Source("tiled_attention.cu", TYPED)
BLOCK = 256
ROWS = BLOCK // 32    # of a block: a warp each
TILE_BYTES = 1 << 28  # of float32 scores
SMALLEST = 64         # tokens: a product of less leaves most of a GPU's core idle


class CudaTiledAttentionCache(TiledAttentionCache):
    """The reference implementation's cache, with `largest` and `total` in float32 whatever the dtype of the rest."""

    @property
    def probs(self):
        """(B, H, Nq, Nk), float32; computed, all of it, when asked for."""
        q, k, bias = (None if x is None else cast(x, "float32") for x in (self.q, self.k, self.bias))
        return probabilities(self._replace(q=q, k=k, bias=bias), *[slice(None)] * 3)


def tiled_attention_cuda(q, k, v, bias=None, scale=None, tile=TILE):
    if not supported(q, k, v, bias, scale):
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
    bias = None if bias is None else cast(bias, "float32")
    samples, side = sizes_of_tile(B, H, tile)
    for part in chunks(B, samples):
        for rows in chunks(Nq, side):
            to = y[part, :, rows]
            heads = xp.empty(to.shape, "float32")
            of_rows = heads.size // width, to.shape[2], Nq
            for columns in chunks(Nk, side):
                scores = scores_of_tile(q, k, scale, part, rows, columns)
                bias_part = strided_bias(bias_of_tile(bias, part, rows, columns))
                exps = scores if q.dtype == "float32" else padded_rows(scores.shape, q.dtype, q)
                first = columns.start == 0
                launch(
                    "tiled_forward", of_rows[0], q, scores, exps, *bias_part, H, largest[part, :, rows],
                    total[part, :, rows], heads, of_rows[0], scores.shape[3], scores.strides[2] // 4, *of_rows[1:],
                    width, int(first),
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
    if not supported(q, k, v, bias, scale) or not dy.dtype == q.dtype == y.dtype or largest.dtype != "float32":
        return reference_backward(tiled_attention_backward, dy, cache)
    xp, (B, H, Nq, _), Nk = array_module(q), q.shape, k.shape[2]
    dq, dk, dv = gradients = empty_gradients(q, k, v, "float32")
    dy, q, k, v = map(as_operand, (rows_contiguous(dy), q, k, v))
    y = rows_contiguous(y)
    sums = xp.empty((B, H, Nq), "float32")
    launch("tiled_sums", sums.size, q, dy, y, sums, sums.size, y.shape[3], Nq, H, *strides_of(dy), *strides_of(y))
    if bias is not None:
        bias, dbias = cast(bias, "float32"), xp.zeros(bias.shape, "float64")  # summed part by part
    samples, side = sizes_of_tile(B, H, tile)
    for part in chunks(B, samples):
        for rows in chunks(Nq, side):
            q_part, dy_part = q[part, :, rows], dy[part, :, rows]
            for columns in chunks(Nk, side):
                k_part, v_part = k[part, :, columns], v[part, :, columns]
                scores = scores_of_tile(q, k, scale, part, rows, columns)
                bias_part = strided_bias(bias_of_tile(bias, part, rows, columns))
                dprobs = multiply_batches(dy_part, v_part.mT, padded_rows(scores.shape, "float32", q))
                probs, dscores = scores, dprobs
                if q.dtype != "float32":
                    probs, dscores = padded_rows(scores.shape, q.dtype, q), padded_rows(scores.shape, q.dtype, q)
                count = scores.size // scores.shape[3]
                launch(
                    "tiled_backward", count, q, scores, dprobs, probs, dscores, *bias_part, H,
                    largest[part, :, rows], total[part, :, rows], sums[part, :, rows], count, scores.shape[3],
                    scores.strides[2] // 4, scores.shape[2], Nq,
                )  # fmt: skip
                later_rows, later_columns = float(rows.start > 0), float(columns.start > 0)
                multiply_batches(probs.mT, dy_part, dv[part, :, columns], beta=later_rows)
                multiply_batches(dscores.mT, q_part, dk[part, :, columns], alpha=scale, beta=later_rows)
                multiply_batches(dscores, k_part, dq[part, :, rows], alpha=scale, beta=later_columns)
                if bias is not None:
                    dbias_part = bias_of_tile(dbias, part, rows, columns)
                    dbias_part += bias_gradient(dscores, dbias_part.shape, "float64")
    gradients = finished(gradients, q.dtype)
    return gradients if bias is None else gradients.with_bias(dbias.astype("float32"))


def sizes_of_tile(B, H, tile):
    """How many samples go into a tile, and how many queries and keys: as many as the caller says, if it says so."""
    side = tile
    if tile == TILE:
        side = max(SMALLEST, isqrt(TILE_BYTES // 4 // (B * H)) // SMALLEST * SMALLEST)
    return min(B, max(1, TILE_BYTES // 4 // (H * side * side))), side


def scores_of_tile(q, k, scale, part, rows, columns):
    """The scores of some queries with some keys, without the bias, float32."""
    q, k = q[part, :, rows], k[part, :, columns]
    return multiply_batches(q, k.mT, padded_rows((*q.shape[:3], k.shape[2]), "float32", q), alpha=scale)


def finished(gradients, dtype):
    """Float32 gradients in the dtype of the queries."""
    if gradients.joined is None:
        return HeadGradients(cast(gradient, dtype) for gradient in gradients)
    return joined_gradients(cast(gradients.joined, dtype))


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
attention_backward.register_cache(CudaTiledAttentionCache, tiled_attention_backward_cuda)
