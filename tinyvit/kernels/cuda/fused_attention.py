"""Attention in float32 whose scores are never written to memory, for heads that are 16 wide.

The cost is how often the N×N scores go through memory: with products by cuBLAS they are written, normalised in
place, and read again, 28 bytes a score forward and 44 back. At 4 TB/s that is 7 and 11 ps a score, however
narrow the head. Here nothing but q, k, v and the heads is moved; the products run on the ordinary cores, 4d
operations a score forward and 14d back (the scores are computed twice more), at perhaps 25 Tflop/s 0.16d and 0.56d ps.
The two cross somewhere between a width of 20 and 44. On an H200 a step of cifar10 (heads 16 wide, float32) takes
42.7 ms, and 50.3 by cuBLAS; with heads 32 wide it took as long either way.

Dao et al. 2022, "FlashAttention", with rows of scores for each thread in place of a tile for each warp.
"""

from math import frexp, ldexp
from typing import NamedTuple

from tinyvit.arrays import Array, array_module
from tinyvit.functional.attention import attention_backward, attention_probs
from tinyvit.functional.heads import empty_gradients
from tinyvit.functional.tiled_attention import tiled_attention_backward
from tinyvit.kernels.cuda.cast import cast
from tinyvit.kernels.cuda.source import PACK_BYTES, Source, blocks

SOURCE = Source("fused_attention.cu", [{}])
HEAD, EACH, CAPACITY = 16, 2, 4096  # as in the .cu file
THREADS = 128  # of a block, at most: three blocks or more fit on an SM, so that one loads while others compute


class FusedAttentionCache(NamedTuple):
    q: Array        # (B, H, Nq, d)
    k: Array        # (B, H, Nk, d)
    v: Array        # (B, H, Nk, d)
    largest: Array  # (B, H, Nq)  the largest score of each query, float32
    inverse: Array  # (B, H, Nq)  1 / Σ exp(scores − largest), float32
    scale: float
    y: Array | None = None  # (B, H, Nq, d)  the heads; None in a TensorAttentionCache

    @property
    def probs(self):
        """(B, H, Nq, Nk), float32: how much each query takes from each key; computed when asked for."""
        return attention_probs(cast(self.q, "float32"), cast(self.k, "float32"), None, self.scale)


def fits(q, k, v):
    """Whether the kernels take these arrays, which `attention.is_supported` does."""
    return q.dtype == "float32" and q.shape[-1] == v.shape[-1] == HEAD and all(map(is_packed, (q, k, v)))


def is_packed(x):
    """Whether each row starts on 16 bytes and is contiguous. The stride of an axis of length 1 is nobody's business."""
    *strides, last = x.strides
    aligned = not any(stride % PACK_BYTES for stride, side in zip(strides, x.shape) if side > 1)
    return last == x.itemsize and aligned and not x.data.ptr % PACK_BYTES


def forward(q, k, v, scale):
    B, H, N, d = q.shape
    xp = array_module(q)
    y = xp.empty((B, N, H, d), q.dtype).transpose(0, 2, 1, 3)  # heads side by side, for the next layer
    largest, inverse = (xp.empty((B, H, N), "float32") for _ in range(2))
    launch("attention_forward", N, q, k, (*with_strides(q, k, v, y), largest, inverse), scale)
    return y, FusedAttentionCache(q, k, v, largest, inverse, scale, y)


def backward(dy, cache):
    q, k, v, largest, inverse, scale, y = cache
    dy = in_packs(dy, q)
    dq, dk, dv = gradients = empty_gradients(q, k, v)
    dots = array_module(q).empty(q.shape[:3], "float32")
    launch("attention_dq", q.shape[2], q, k, (*with_strides(q, k, v, dy, dq, y), largest, inverse, dots), scale)
    launch("attention_dk_dv", k.shape[2], q, k, (*with_strides(q, k, v, dy, dk, dv), largest, inverse, dots), scale)
    return gradients


def in_packs(dy, like):
    """`dy` in the dtype of another array, and with rows that the kernels can read."""
    fits = dy.dtype == like.dtype and is_packed(dy)
    return dy if fits else array_module(dy).ascontiguousarray(dy.astype(like.dtype, copy=False))


def with_strides(*arrays):
    """The arrays, each with its strides in numbers."""
    return [part for x in arrays for part in (x, *(stride // x.itemsize for stride in x.strides[:3]))]


def launch(name, rows, q, k, arrays, scale):
    """Start a kernel in which each thread has two of the `rows` of a head."""
    B, H, N, _ = q.shape
    tile = min(blocks(rows, EACH), THREADS)
    together = min(H, THREADS // tile)
    together = blocks(H, blocks(H, together))  # as many in each block
    grid = B, blocks(H, together), blocks(rows, tile * EACH)
    block = 32 * blocks(together * tile, 32)
    sizes = H, N, k.shape[2], together, tile, CAPACITY // (together * HEAD)
    fraction, exponent = frexp(scale)
    SOURCE.launch(name, grid, block, *arrays, *sizes, ldexp(0.5, exponent), 2 * fraction)


for operation in (attention_backward, tiled_attention_backward):
    operation.register_cache(FusedAttentionCache, backward)
