"""GELU in one pass forward and one back, also of x + bias, and its tanh form."""

from typing import NamedTuple

from tinyvit.backend import Array, array_module
from tinyvit.functional.gelu import (
    bias_gelu,
    bias_gelu_backward,
    gelu,
    gelu_backward,
    gelu_tanh,
    gelu_tanh_backward,
)
from tinyvit.kernels.cuda.cast import cast
from tinyvit.kernels.cuda.column_sums import add_sums_of_blocks, share_of
from tinyvit.kernels.cuda.source import (
    KINDS,
    PACKED,
    Source,
    blocks,
    contiguous,
    empty_like,
    pack_of,
    run_reference,
    type_of,
)

SOURCE = Source("elementwise.cu", PACKED)
BLOCK = 256
ROWS = 8  # that a thread goes through where it adds a bias


class CudaGeluCache(NamedTuple):
    x: Array  # (...)

    @property
    def cdf(self):
        """Φ(x) (...), float32, computed when asked for."""
        return gelu.reference(cast(self.x, "float32"))[1].cdf


class CudaBiasGeluCache(NamedTuple):
    x: Array     # (..., D)  without the bias
    bias: Array  # (D,)

    @property
    def cdf(self):
        """Φ(x + bias) (..., D), float32, computed when asked for."""
        return gelu.reference(cast(self.x, "float32") + self.bias)[1].cdf


class CudaGeluTanhCache(NamedTuple):
    x: Array  # (...)

    @property
    def t(self):
        """The tanh (...), float32, computed when asked for."""
        return gelu_tanh.reference(cast(self.x, "float32"))[1].t


def gelu_cuda(x):
    x = contiguous(x)
    return launch("gelu_forward", x), CudaGeluCache(x)


def bias_gelu_cuda(x, bias):
    if x.ndim == 0 or bias.shape != x.shape[-1:]:
        return bias_gelu.reference(x, bias)  # raises
    if bias.dtype != "float32":
        return run_reference(bias_gelu, x, bias)
    x, bias = contiguous(x), contiguous(bias)
    y, D = empty_like(x), x.shape[-1]
    if x.size:
        pack = pack_of(D, x, bias, y)
        packs_of_row = D // pack
        stride = packs_of_row * blocks(x.size // D, ROWS)
        SOURCE.launch(
            "bias_gelu_forward", blocks(stride, BLOCK), BLOCK, x, bias, y, x.size // pack, packs_of_row, stride,
            T=type_of(x), PACK=pack,
        )  # fmt: skip
    return y, CudaBiasGeluCache(x, bias)


def bias_gelu_backward_cuda(dy, cache, into):
    dy, x = same_dtype(bias_gelu_backward, dy, cache)
    dx, D, xp = empty_like(dy), x.shape[-1], array_module(dy)
    rows = x.size // D if D else 0
    share, pack = share_of(rows), pack_of(D, x, cache.bias, dy, dx)
    partial = None if into[0] is False else xp.empty((1, blocks(rows, share), D), "float32")
    SOURCE.launch(
        "bias_gelu_backward", (blocks(D, 32 * pack), blocks(rows, share)), BLOCK, dy, x, cache.bias, dx, partial, rows,
        D, share, T=type_of(x), PACK=pack,
    )  # fmt: skip
    return dx, *((None,) if partial is None else add_sums_of_blocks(partial, into))


def gelu_tanh_cuda(x):
    x = contiguous(x)
    return launch("gelu_tanh_forward", x), CudaGeluTanhCache(x)


def gelu_backward_cuda(dy, cache):
    return launch("gelu_backward", *same_dtype(gelu_backward, dy, cache))


def gelu_tanh_backward_cuda(dy, cache):
    return launch("gelu_tanh_backward", *same_dtype(gelu_tanh_backward, dy, cache))


def same_dtype(operation, dy, cache):
    if dy.dtype != cache.x.dtype:
        raise ValueError(f"{operation.__name__}: expected dy in {cache.x.dtype}, like x, got {dy.dtype}")
    return contiguous(dy), cache.x


def launch(name, *arrays):
    x, result = arrays[0], empty_like(arrays[0])
    pack = pack_of(x.size, *arrays, result)
    SOURCE.launch(name, blocks(x.size, pack * BLOCK), BLOCK, *arrays, result, x.size, T=type_of(x), PACK=pack)
    return result


for kind in KINDS:
    gelu.register(kind, gelu_cuda)
    bias_gelu.register(kind, bias_gelu_cuda)
    gelu_tanh.register(kind, gelu_tanh_cuda)
gelu_backward.register_cache(CudaGeluCache, gelu_backward_cuda)
bias_gelu_backward.register_cache(CudaBiasGeluCache, bias_gelu_backward_cuda)
gelu_tanh_backward.register_cache(CudaGeluTanhCache, gelu_tanh_backward_cuda)
