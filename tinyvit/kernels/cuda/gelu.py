"""GELU and its tanh form in one pass forward and one back."""

from typing import NamedTuple

from tinyvit.backend import Array
from tinyvit.functional.gelu import gelu, gelu_backward, gelu_tanh, gelu_tanh_backward
from tinyvit.kernels.cuda.source import KINDS, PACKED, Source, blocks, contiguous, empty_like, pack_of, type_of

SOURCE = Source("gelu.cu", PACKED)
BLOCK = 256


class CudaGeluCache(NamedTuple):
    slope: Array  # (...)  dy/dx, for GELU itself Φ(x) + x φ(x)


def gelu_cuda(x):
    return with_slope("gelu_forward", x)


def gelu_tanh_cuda(x):
    return with_slope("gelu_tanh_forward", x)


def with_slope(name, x):
    x = contiguous(x)
    y, slope = empty_like(x), empty_like(x)
    launch(name, x, y, slope)
    return y, CudaGeluCache(slope)


def gelu_backward_cuda(dy, cache):
    dy = contiguous(dy)
    dx = empty_like(dy)
    launch("gelu_backward", dy, cache.slope, dx)
    return dx


def launch(name, *arrays):
    x = arrays[0]
    pack = pack_of(x.size, *arrays)
    SOURCE.launch(name, blocks(x.size, pack * BLOCK), BLOCK, *arrays, x.size, T=type_of(x), PACK=pack)


for kind in KINDS:
    gelu.register(kind, gelu_cuda)
    gelu_tanh.register(kind, gelu_tanh_cuda)
gelu_backward.register_cache(CudaGeluCache, gelu_backward_cuda)
gelu_tanh_backward.register_cache(CudaGeluCache, gelu_backward_cuda)
