"""The hyperbolic tangent in one pass forward and one back."""

from tinyvit.functional.tanh import TanhCache, tanh, tanh_backward
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

SOURCE = Source("tanh.cu", PACKED)
BLOCK = 256


def tanh_cuda(x):
    x = contiguous(x)
    y = empty_like(x)
    launch("tanh_forward", x, y)
    return y, TanhCache(y)


def tanh_backward_cuda(dy, cache):
    y = cache.y
    if dy.dtype != y.dtype:
        return run_reference(tanh_backward, dy, cache)
    dy, y = contiguous(dy), contiguous(y)
    dx = empty_like(dy)
    launch("tanh_backward", dy, y, dx)
    return dx


def launch(name, *arrays):
    x = arrays[0]
    pack = pack_of(x.size, *arrays)
    SOURCE.launch(name, blocks(x.size, pack * BLOCK), BLOCK, *arrays, x.size, T=type_of(x), PACK=pack)


for kind in KINDS:
    tanh.register(kind, tanh_cuda)
    tanh_backward.register(kind, tanh_backward_cuda)
