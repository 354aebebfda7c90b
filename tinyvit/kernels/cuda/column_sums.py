"""Sums over the rows of a matrix, for gradients of biases: in float32, without atomics, always the same bits."""

from tinyvit.backend import array_module
from tinyvit.kernels.cuda.source import PACKED, Source, blocks, pack_of, type_of

SOURCE = Source("column_sums.cu", PACKED)
BLOCK = 256  # threads: eight warps, as column_sums.cu has it
AT_ONCE = 512  # rows that one block adds up alone
MOST, LEAST = 256, 64  # blocks that share more rows than that, and rows of such a block


def add_column_sums(rows, into=None):
    """The sums over the first axis of `rows` (R, D), added to the array `into` (D,) if a kernel can write there.

    rows  contiguous, in float32, bfloat16 or float16
    into  None for a new array, as for an array that isn't contiguous or float32; False for no sums at all: None
    """
    return add_column_sums_of(rows[None], (into,))[0]


def add_column_sums_of(matrices, into):
    """The same for one matrix or two, `matrices` (1 or 2, R, D), and as many entries of `into`; returns a list."""
    xp, (count, R, D) = array_module(matrices), matrices.shape
    totals = [destination(goal, D, xp) for goal in into]
    if any(total is not None for total in totals):
        if R > AT_ONCE:
            share = max(LEAST, blocks(R, MOST))
            partial = xp.empty((count, blocks(R, share), D), "float32")
            parts = [None if total is None else part for total, part in zip(totals, partial)]
            launch(matrices, parts, share, add=False)
            matrices = partial
        launch(matrices, totals, AT_ONCE, add=True)
    return totals


def destination(goal, D, xp):
    """Where a kernel adds up the sums for an entry of `into`: there itself, if it can, or in a new array."""
    if goal is False:
        return None
    fits = goal is not None and goal.shape == (D,) and goal.dtype == "float32" and goal.flags.c_contiguous
    return goal if fits else xp.zeros(D, "float32")


def launch(matrices, out, share, add):
    (count, R, D), pack = matrices.shape, pack_of(matrices.shape[-1], matrices)
    first, second = (*out, None)[:2]
    grid = blocks(D, 32 * pack), blocks(R, share), count
    SOURCE.launch(
        "column_sums", grid, BLOCK, matrices, first, second, R, D, share, int(add), T=type_of(matrices), PACK=pack
    )
