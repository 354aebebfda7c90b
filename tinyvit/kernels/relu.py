"""ReLU by NumPy, several times as fast as choosing with `where`."""

import numpy as np

from tinyvit.functional.chunks import CHUNK, chunks
from tinyvit.functional.relu import ReluCache, relu, relu_backward

BITS = {"float32": "int32", "float64": "int64"}  # integers as long as a number


def relu_by_maximum(x):
    y = np.maximum(x, 0)
    return y, ReluCache(y)


def relu_backward_in_bits(dy, cache):
    """The bits of dy where y > 0, in pieces that fit the cache. A product with 0 would turn infinity into NaN."""
    y, bits = cache.y, BITS[dy.dtype.name]
    if y.dtype != dy.dtype or y.shape != dy.shape:
        return relu_backward.reference(dy, cache)
    y, dy, dx = y.reshape(-1), np.ascontiguousarray(dy).reshape(-1).view(bits), np.empty(dy.shape, dy.dtype)
    dx_bits, masks = dx.reshape(-1).view(bits), np.empty(min(CHUNK, dx.size), bits)
    for part in chunks(dx.size):
        mask = masks[: dy[part].size]
        mask[...] = y[part] <= 0
        mask -= 1  # 0 where y ≤ 0, else −1, all of whose bits are 1
        np.bitwise_and(dy[part], mask, out=dx_bits[part])
    return dx


for dtype in BITS:
    relu.register(("numpy", dtype), relu_by_maximum)
    relu_backward.register(("numpy", dtype), relu_backward_in_bits)
