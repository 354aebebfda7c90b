"""GELU in one pass forward and one back, and its tanh form."""

from typing import NamedTuple

from tinyvit.arrays import Array
from tinyvit.functional.gelu import (
    gelu,
    gelu_backward,
    gelu_tanh,
    gelu_tanh_backward,
)
from tinyvit.kernels.cuda.cast import cast
from tinyvit.kernels.cuda.source import (
    KINDS,
    PACKED,
    Source,
    blocks,
    contiguous,
    empty_like,
    pack_of,
    type_of,
)

SOURCE = Source("elementwise.cu", PACKED)
BLOCK = 256


class CudaGeluCache(NamedTuple):
    x: Array  # (...)

    @property
    def cdf(self):
        """Φ(x) (...), float32, computed when asked for."""
        return gelu.reference(cast(self.x, "float32"))[1].cdf


class CudaGeluTanhCache(NamedTuple):
    x: Array  # (...)

    @property
    def t(self):
        """The tanh (...), float32, computed when asked for."""
        return gelu_tanh.reference(cast(self.x, "float32"))[1].t


def gelu_cuda(x):
    x = contiguous(x)
    return launch("gelu_forward", x), CudaGeluCache(x)


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
    gelu_tanh.register(kind, gelu_tanh_cuda)
gelu_backward.register_cache(CudaGeluCache, gelu_backward_cuda)
gelu_tanh_backward.register_cache(CudaGeluTanhCache, gelu_tanh_backward_cuda)
