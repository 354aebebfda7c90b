"""Attention whose scores are never written to memory, for narrow heads.

The cost is how often the N×N scores go through memory: with products by cuBLAS they are written, normalised in
place, and read again, 28 bytes a score forward and 44 back in float32. At 4 TB/s that is 7 and 11 ps a score, however
narrow the head. Here nothing but q, k, v, a bias and the heads is moved; the products run on the ordinary cores, 4d
operations a score forward and 14d back (the scores are computed twice more), at perhaps 25 Tflop/s 0.16d and 0.56d ps.
The two cross somewhere between a width of 20 and 44. With a bias the backward writes the gradient of the scores once,
and reads it once to sum it. On an H200 a step of cifar10 (heads 16 wide, float32) takes 42.7 ms, and 50.3 by cuBLAS;
one of cifar10-cpu or cifar10-swin (heads 32 wide) takes as long either way.

Dao et al. 2022, "FlashAttention", with rows of scores for each thread in place of a tile for each warp.
"""

from math import frexp, ldexp
from typing import NamedTuple

from tinyvit.backend import Array, array_module
from tinyvit.functional.attention import attention_backward, attention_probs
from tinyvit.functional.heads import empty_gradients
from tinyvit.kernels.cuda.attention_bias import bias_gradient, strided_bias
from tinyvit.kernels.cuda.cast import cast
from tinyvit.kernels.cuda.source import PACK_BYTES, TYPES, Source, blocks, type_of

NARROW = (16, 32)  # widths of heads
SOURCE = Source(
    "fused_attention.cu",
    [{"T": T, "HEAD": width, "BIAS": bias} for T in TYPES.values() for width in NARROW for bias in (0, 1)],
)
THREADS = 128      # of a block, at most: three blocks or more fit on an SM, so that one loads while others compute
CAPACITY, EACH, COLUMNS = 4096, 2, 16  # as in the .cu file


class FusedAttentionCache(NamedTuple):
    q: Array        # (B, H, Nq, d)
    k: Array        # (B, H, Nk, d)
    v: Array        # (B, H, Nk, d)
    largest: Array  # (B, H, Nq)  the largest score of each query, float32
    inverse: Array  # (B, H, Nq)  1 / Σ exp(scores − largest), float32
    scale: float
    bias: Array | None
    y: Array | None = None  # (B, H, Nq, d)  the heads, float32; None in a TensorAttentionCache

    @property
    def probs(self):
        """(B, H, Nq, Nk), float32: how much each query takes from each key; computed when asked for."""
        q, k, bias = (None if x is None else cast(x, "float32") for x in (self.q, self.k, self.bias))
        return attention_probs(q, k, bias, self.scale)


def fits(q, k, v):
    """Whether the kernels take these arrays, which `attention.supported` does: one narrow width, and packed rows."""
    return q.shape[-1] in NARROW and q.shape[-1] == v.shape[-1] and all(map(packed, (q, k, v)))


def packed(x):
    """Whether each row starts on 16 bytes and is contiguous. The stride of an axis of length 1 is nobody's business."""
    *strides, last = x.strides
    aligned = not any(stride % PACK_BYTES for stride, side in zip(strides, x.shape) if side > 1)
    return last == x.itemsize and aligned and not x.data.ptr % PACK_BYTES


def forward(q, k, v, bias, scale):
    B, H, N, d = q.shape
    xp = array_module(q)
    y = xp.empty((B, N, H, d), q.dtype).transpose(0, 2, 1, 3)  # heads side by side, for the next layer
    largest, inverse = (xp.empty((B, H, N), "float32") for _ in range(2))
    exact = None if q.dtype == "float32" else xp.empty((B, N, H, d), "float32").transpose(0, 2, 1, 3)
    arrays = *strided(q), *strided(k), *strided(v), *strided_bias(bias), *strided(y), exact, largest, inverse
    launch("attention_forward", N, q, k, bias, arrays, scale)
    return y, FusedAttentionCache(q, k, v, largest, inverse, scale, bias, y if exact is None else exact)


def backward(dy, cache):
    q, k, v, largest, inverse, scale, bias, y = cache
    (B, H, N, _), Nk = q.shape, k.shape[2]
    xp = array_module(q)
    if dy.dtype != q.dtype or not packed(dy):
        dy = xp.ascontiguousarray(dy.astype(q.dtype, copy=False))
    dq, dk, dv = gradients = empty_gradients(q, k, v)
    dots = xp.empty((B, H, N), "float32")
    dscores = None if bias is None else xp.empty((B, H, N, Nk), "float32")
    inputs = *strided(q), *strided(k), *strided(v), *strided(dy), *strided_bias(bias)
    launch("attention_dq", N, q, k, bias, (*inputs, *strided(dq), *strided(y), largest, inverse, dots), scale)
    arrays = *inputs, *strided(dk), *strided(dv), largest, inverse, dots, dscores
    launch("attention_dk_dv", Nk, q, k, bias, arrays, scale)
    return gradients if bias is None else gradients.with_bias(bias_gradient(dscores, bias.shape))


def strided(x):
    """An array with its strides, in numbers."""
    size = x.itemsize
    sample, head, row, _ = x.strides
    return x, sample // size, head // size, row // size


def launch(name, rows, q, k, bias, arrays, scale):
    """Start a kernel in which each thread has columns of two of the `rows` of a head."""
    B, H, N, d = q.shape
    lanes = d // COLUMNS
    tile = min(blocks(rows, EACH), THREADS // lanes)
    together = min(H, THREADS // (tile * lanes), CAPACITY // d)
    together = blocks(H, blocks(H, together))  # as many in each block
    grid = B, blocks(H, together), blocks(rows, tile * EACH)
    block = 32 * blocks(together * tile * lanes, 32)
    sizes = H, N, k.shape[2], together, tile, CAPACITY // (together * d)
    fraction, exponent = frexp(scale)
    power, rest = ldexp(0.5, exponent), 2 * fraction
    SOURCE.launch(name, grid, block, *arrays, *sizes, power, rest, T=type_of(q), HEAD=d, BIAS=int(bias is not None))


attention_backward.register_cache(FusedAttentionCache, backward)
