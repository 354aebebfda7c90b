"""Positions added in one pass, and their gradients summed up over the samples in two stages."""

from tinyvit.functional.positions import AddPositionsCache, add_positions, add_positions_backward
from tinyvit.kernels.cuda.column_sums import add_column_sums
from tinyvit.kernels.cuda.source import KINDS, PACKED, Source, blocks, contiguous, empty_like, pack_of, type_of
from tinyvit.kernels.cuda.tokens import MOST_SAMPLES

SOURCE = Source("positions.cu", PACKED)
BLOCK = 256


def add_positions_cuda(x, positions):
    B, N, D = x.shape
    if positions.shape != (1, N, D):
        raise ValueError(f"add_positions: expected positions {(1, N, D)}, got {positions.shape}")
    x, positions = contiguous(x), contiguous(positions)
    y, pack = empty_like(x), pack_of(N * D, x, positions)
    grid = blocks(N * D, pack * BLOCK), min(B, MOST_SAMPLES)
    SOURCE.launch("add_positions", grid, BLOCK, x, positions, y, B, N * D, T=type_of(x), PACK=pack)
    return y, AddPositionsCache(x.shape)


def add_positions_backward_cuda(dy, cache, into):
    (goal,) = into
    if goal is False:
        return dy, None
    samples = contiguous(dy).reshape(len(dy), dy.shape[1] * dy.shape[2])       # (B, N·D)
    if goal is None or goal.dtype != "float32" or not goal.flags.c_contiguous:
        return dy, add_column_sums(samples).reshape(1, *dy.shape[1:])
    add_column_sums(samples, goal.reshape(-1))  # a view
    return dy, goal


for kind in KINDS:
    add_positions.register(kind, add_positions_cuda)
    add_positions_backward.register(kind, add_positions_backward_cuda)
