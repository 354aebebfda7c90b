"""Sums over the rows of a matrix, for gradients of biases: in float32, without atomics, always the same bits.

Blocks sum up some rows each; then their sums are added up.
"""

from tinyvit.arrays import array_module
from tinyvit.kernels.cuda.source import PACKED, Source, blocks, pack_of, type_of

SOURCE = Source("column_sums.cu", PACKED)
BLOCK = 256  # threads: eight warps, as column_sums.cu has it
MAX_SINGLE_ROWS = 512  # rows that one block adds up alone
MAX_BLOCKS, MIN_BLOCK_ROWS = 256, 64  # blocks that share more rows, and rows of such a block


def add_column_sums(rows, into=None):
    """The sums over the first axis of `rows` (R, D), added to the array `into` (D,) if a kernel can write there.

    rows  contiguous, in float32, bfloat16 or float16
    into  None for a new array, as for an array that isn't contiguous or float32; False for no sums at all: None
    """
    xp, (R, D) = array_module(rows), rows.shape
    total = destination(into, D, xp)
    if total is None:
        return None
    if R <= MAX_SINGLE_ROWS:
        launch(rows[None], [total], MAX_SINGLE_ROWS, add=True)
        return total
    share = max(MIN_BLOCK_ROWS, blocks(R, MAX_BLOCKS))
    partial = xp.empty((1, blocks(R, share), D), "float32")
    launch(rows[None], partial, share, add=False)
    return add_sums_of_blocks(partial, [total])[0]


def add_partial_sums(rows, shape, into=None):
    """The sums over the first axis of `rows` (R, n) in this shape, added to `into` if a kernel can write there."""
    flat = None if into is None or not into.flags.c_contiguous else into.reshape(-1)
    total = add_column_sums(rows, flat)
    return into if total is flat and flat is not None else total.reshape(shape)


def add_sums_of_blocks(partial, into):
    """The second stage for a first one in a kernel: the sums over the blocks of `partial` (count, blocks, D), float32.

    One or two matrices of at most `MAX_SINGLE_ROWS` blocks, and as many entries of `into`; returns a list.
    """
    totals = [destination(goal, partial.shape[-1], array_module(partial)) for goal in into]
    if any(total is not None for total in totals):
        launch(partial, totals, MAX_SINGLE_ROWS, add=True)
    return totals


def destination(goal, D, xp):
    """The array that a kernel adds up the sums in for an entry of `into`: that entry, if it can, or a new one."""
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
