"""Positions added in one pass, and their gradients summed up over the samples in two stages."""

from tinyvit.functional.positions import AddPositionsCache, add_positions, add_positions_backward
from tinyvit.kernels.cuda.column_sums import add_partial_sums
from tinyvit.kernels.cuda.linear import add_bias
from tinyvit.kernels.cuda.source import KINDS, contiguous, empty_like


def add_positions_cuda(x, positions):
    B, N, D = x.shape
    if positions.shape != (1, N, D):
        raise ValueError(f"add_positions: expected positions {(1, N, D)}, got {positions.shape}")
    x, positions = contiguous(x), contiguous(positions.astype("float32", copy=False))
    y = empty_like(x)
    add_bias(x.reshape(B, N * D), positions.reshape(N * D), y.reshape(B, N * D))
    return y, AddPositionsCache(x.shape)


def add_positions_backward_cuda(dy, cache, into):
    if into[0] is False:
        return dy, None
    B, N, D = dy.shape
    return dy, add_partial_sums(contiguous(dy).reshape(B, N * D), (1, N, D), into[0])


for kind in KINDS:
    add_positions.register(kind, add_positions_cuda)
    add_positions_backward.register(kind, add_positions_backward_cuda)
