"""Attention on tensor cores whose scores are never written to memory: bfloat16 and float16.

Nothing but q, k, v and the heads is moved, and two numbers for each query that the backward needs. The products
take bfloat16 or float16 and add up in float32; scores and everything made of them are float32 until they are an operand
of the next product. The forward adds up tile by tile with a running maximum. The backward computes the scores again. It
is one kernel where the rows of a head, up to 80, fit into one tile; else it is one for dq, and one for dk and dv. Every
sum has a fixed order.
On an H200 a step of cifar10 (bfloat16, as a CUDA graph) takes 10.9 ms, and 15.3 by cuBLAS; of cifar10-cpu 4.8 and 7.7.

Dao et al. 2022, "FlashAttention", and Dao 2023, "FlashAttention-2", for the division of the work among warps.
"""

from math import copysign, frexp, ldexp

from tinyvit.arrays import array_module
from tinyvit.functional.attention import attention_backward
from tinyvit.functional.heads import empty_gradients
from tinyvit.functional.tiled_attention import tiled_attention_backward
from tinyvit.kernels.cuda.fused_attention import FusedAttentionCache, in_packs, is_packed, with_strides
from tinyvit.kernels.cuda.source import TYPES, Source, blocks, has_tensor_cores, type_of
from tinyvit.operands import LOW_PRECISION, kind

WIDTHS = (16, 24, 32, 48, 64)  # of heads
SOURCE = Source("tensor_attention.cu", [{"T": TYPES[T], "HEAD": width} for T in LOW_PRECISION for width in WIDTHS])
ROWS = 80              # of a tile, as in the .cu file
STRIP = 16             # rows of a warp
WARPS = ROWS // STRIP  # of a block, at most


class TensorAttentionCache(FusedAttentionCache):
    """As that of `fused_attention`, but `largest` is an exponent of 2: log2(e) times as large."""


def fits(q, k, v):
    """Whether the kernels take these arrays, which `attention.is_supported` does, and this GPU has the instructions."""
    return (
        q.shape[-1] in WIDTHS
        and q.shape[-1] == v.shape[-1]
        and kind(q)[1] in LOW_PRECISION
        and all(map(is_packed, (q, k, v)))
        and has_tensor_cores(q)
    )


def forward(q, k, v, scale):
    xp, (B, H, N, d) = array_module(q), q.shape
    y = xp.empty((B, N, H, d), q.dtype).transpose(0, 2, 1, 3)  # heads side by side, as the next layer reads them
    largest, inverse = xp.empty((B, H, N), "float32"), xp.empty((B, H, N), "float32")
    launch("tensor_forward", N, k.shape[2], q, k, (*with_strides(q, k, v, y), largest, inverse), scale)
    return y, TensorAttentionCache(q, k, v, largest, inverse, scale)


def backward(dy, cache):
    q, k, v, largest, inverse, scale, _ = cache
    N, Nk, dy = q.shape[2], k.shape[2], in_packs(dy, q)
    dq, dk, dv = gradients = empty_gradients(q, k, v)
    inputs = with_strides(q, k, v, dy)
    if max(N, Nk) <= ROWS:
        outputs = *with_strides(dq, dk, dv), largest, inverse
        launch("tensor_backward", max(N, Nk), max(N, Nk), q, k, (*inputs, *outputs), scale)
    else:
        statistics = largest, inverse, array_module(q).empty(q.shape[:3], "float32")
        launch("tensor_dq", N, Nk, q, k, (*inputs, *with_strides(dq), *statistics), scale)
        launch("tensor_dk_dv", Nk, N, q, k, (*inputs, *with_strides(dk, dv), *statistics), scale)
    return gradients


def launch(name, rows, in_tile, q, k, arrays, scale):
    """Start a kernel whose warps have 16 of the `rows` of a head each, and go through `in_tile` rows in tiles."""
    (B, H, N, d), Nk = q.shape, k.shape[2]
    strips = blocks(rows, STRIP)
    splits = blocks(strips, WARPS)    # blocks for the rows of a head
    strips = blocks(strips, splits)   # of a head in each block
    length = min(ROWS, STRIP * blocks(in_tile, STRIP))
    together = min(H, WARPS // strips, ROWS // length)
    together = blocks(H, blocks(H, together))  # as many heads in each block
    grid, block = B * blocks(H, together) * splits, 32 * strips * together
    sizes = H, N, Nk, together, strips, length
    SOURCE.launch(name, grid, block, *arrays, *sizes, *factors(q, scale), T=type_of(q), HEAD=d)


def factors(q, scale):
    """The scale as the product of a number that rows are multiplied by in their dtype, and one that isn't negative.

    In bfloat16 the first is a power of 2, so that a dot product overflows only if the score is too large itself.
    Float32 holds all dot products of float16, where a power of 2 could make numbers too small.
    """
    if scale == 0:
        return 0.0, 1.0
    if q.dtype == "float16":
        return copysign(1.0, scale), abs(float(scale))
    fraction, exponent = frexp(abs(scale))
    return copysign(ldexp(0.5, exponent), scale), 2 * fraction


for operation in (attention_backward, tiled_attention_backward):
    operation.register_cache(TensorAttentionCache, backward)
