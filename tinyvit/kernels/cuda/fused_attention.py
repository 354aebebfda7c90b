"""Attention whose scores are never written to memory, for narrow heads.

What decides is how often the N×N scores go through memory: with products by cuBLAS they are written, normalised in
place, and read again, 28 bytes a score forward and 44 back in float32. At 4 TB/s that is 7 and 11 ps a score, however
narrow the head. Here nothing but q, k, v and the heads is moved; the products run on the ordinary cores, 4d operations
a score forward and 16d back (the scores are computed twice more), at perhaps 25 Tflop/s 0.16d and 0.64d ps. The two
cross somewhere between a width of 16 and 40. Both rates are estimates: they were not measured on a card.

Dao et al. 2022, "FlashAttention", with rows of scores for each thread in place of a tile for each warp.
"""

from typing import NamedTuple

from tinyvit.backend import Array, array_module
from tinyvit.functional.attention import NARROW, attention_backward
from tinyvit.functional.softmax import softmax
from tinyvit.kernels.cuda.source import PACK_BYTES, TYPES, Source, blocks, type_of

SOURCE = Source("fused_attention.cu", [{"T": T, "HEAD": width} for T in TYPES.values() for width in NARROW])
CAPACITY = 4096    # as in the .cu file
THREADS = 256      # of a block, at most


class FusedAttentionCache(NamedTuple):
    q: Array        # (B, H, Nq, d)
    k: Array        # (B, H, Nk, d)
    v: Array        # (B, H, Nk, d)
    largest: Array  # (B, H, Nq)  the largest score of each query, float32
    inverse: Array  # (B, H, Nq)  1 / Σ exp(scores − largest), float32
    scale: float

    @property
    def probs(self):
        """(B, H, Nq, Nk), float32: how much each query takes from each key; computed whenever somebody looks."""
        q, k = (x.astype("float32") for x in (self.q, self.k))
        return softmax.reference(q * self.scale @ k.mT)[0]


def fits(q, k, v):
    """Whether the kernels are made for these: four axes, one type and width, none empty, rows that can be packed."""
    return (
        q.ndim == 4
        and q.shape[-1] in NARROW
        and q.shape[-1] == v.shape[-1]
        and q.dtype == k.dtype == v.dtype
        and q.size > 0
        and k.size > 0
        and packed(q)
        and packed(k)
        and packed(v)
    )


def packed(x):
    """Whether each row starts on 16 bytes and is contiguous."""
    *strides, last = x.strides
    return last == x.itemsize and not (x.data.ptr % PACK_BYTES or any(stride % PACK_BYTES for stride in strides))


def forward(q, k, v, scale):
    B, H, N, d = q.shape
    xp = array_module(q)
    y = xp.empty((B, N, H, d), q.dtype).transpose(0, 2, 1, 3)  # heads side by side, as what follows wants them
    largest, inverse = (xp.empty((B, H, N), "float32") for _ in range(2))
    arrays = *strided(q), *strided(k), *strided(v), *strided(y), largest, inverse
    launch("attention_forward", N, q, k, arrays, scale)
    return y, FusedAttentionCache(q, k, v, largest, inverse, scale)


def backward(dy, cache):
    q, k, v, largest, inverse, scale = cache
    B, H, N, d = q.shape
    Nk = k.shape[2]
    xp = array_module(q)
    if dy.dtype != q.dtype or not packed(dy):
        dy = xp.ascontiguousarray(dy.astype(q.dtype, copy=False))
    if k.shape == q.shape:  # one array, as the layer that they came from wants it
        dq, dk, dv = xp.empty((B, N, 3, H, d), q.dtype).transpose(2, 0, 3, 1, 4)
    else:
        dq, dk, dv = (xp.empty(x.shape, q.dtype) for x in (q, k, v))
    along = xp.empty((B, H, N), "float32")
    qkv = *strided(q), *strided(k), *strided(v)
    arrays = *qkv, *strided(dy), *strided(dq), largest, inverse, along
    launch("attention_dq", N, q, k, arrays, scale)
    arrays = *qkv, *strided(dy), *strided(dk), *strided(dv), largest, inverse, along
    launch("attention_dk_dv", Nk, q, k, arrays, scale)
    return dq, dk, dv


def strided(x):
    """An array with its strides, in numbers."""
    size = x.itemsize
    sample, head, row, _ = x.strides
    return x, sample // size, head // size, row // size


def launch(name, rows, q, k, arrays, scale):
    """Start a kernel in which each thread has one or two of the `rows` of a head."""
    B, H, N, d = q.shape
    each = 2 if name == "attention_forward" or d == 16 else 1
    tile = min(blocks(rows, each), THREADS)
    together = min(H, THREADS // tile, CAPACITY // d)
    together = blocks(H, blocks(H, together))  # as many in each block
    stretch = CAPACITY // (together * d)
    grid = B * blocks(H, together) * blocks(rows, tile * each)
    block = 32 * blocks(together * tile, 32)
    sizes = H, N, k.shape[2], together, tile, stretch
    SOURCE.launch(name, grid, block, *arrays, *sizes, float(scale), T=type_of(q), HEAD=d)


attention_backward.register_cache(FusedAttentionCache, backward)
