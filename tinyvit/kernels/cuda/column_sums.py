"""Sums over the rows of a matrix, for gradients of biases: in float32, without atomics, always the same bits.

Blocks sum up some rows each; then their sums are added up. Inside `functional.sums.sums_together`, as in a training
step, this second stage is left, and one kernel does it for all the sums of a step.
"""

import numpy as np

from tinyvit.backend import array_module, scope
from tinyvit.functional.sums import add_sums
from tinyvit.kernels.cuda.source import PACKED, Source, blocks, pack_of, type_of

SOURCE = Source("column_sums.cu", PACKED)
TOGETHER = Source("sums_together.cu", [{}])
BLOCK = 256  # threads: eight warps, as column_sums.cu has it
AT_ONCE = 512  # rows that one block adds up alone
MOST, LEAST = 256, 64  # blocks that share more rows than that, and rows of such a block


def add_column_sums(rows, into=None):
    """The sums over the first axis of `rows` (R, D), added to the array `into` (D,) if a kernel can write there.

    rows  contiguous, in float32, bfloat16 or float16
    into  None for a new array, as for an array that isn't contiguous or float32; False for no sums at all: None
    """
    xp, (R, D) = array_module(rows), rows.shape
    total = destination(into, D, xp)
    if total is None:
        return None
    if R <= AT_ONCE:
        launch(rows[None], [total], AT_ONCE, add=True)
        return total
    share = share_of(R)
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

    At most `AT_ONCE` blocks, and as many entries of `into` as there are sums; returns a list. Nobody else may write to
    `partial` afterwards.
    """
    xp, D = array_module(partial), partial.shape[-1]
    totals = [destination(goal, D, xp) for goal in into]
    now = [None if t is None or leave(partial, i, t) else t for i, t in enumerate(totals)]
    for first in range(0, len(now), 2):
        if any(total is not None for total in now[first : first + 2]):
            launch(partial[first : first + 2], now[first : first + 2], AT_ONCE, add=True)
    return totals


def share_of(rows):
    """How many rows a block sums up in the first stage."""
    return max(LEAST, blocks(rows, MOST))


def leave(rows, i, total):
    """Whether the sum of rows[i] (R, D) was left, to be added to `total` (D,) with others: a part of their array."""
    left = scope().sums
    if left is None:
        return False
    where, size = total.data.ptr - left.x.data.ptr, left.x.nbytes
    if not 0 <= where <= size - total.nbytes:
        return False
    left.parts.append((rows, i, where // total.itemsize))
    return True


WIDE = 32    # columns of a block
TABLES = {}  # the parts, as numbers -> as the kernel reads them: where addresses recur nothing is uploaded
MOST_TABLES = 16
CAPTURED = {}  # the same of captured steps, never cleared: a CUDA graph reads them whenever it is launched


def add_sums_cuda(x, parts):
    xp = array_module(x)
    numbers = tuple((rows.data.ptr + i * rows.strides[0], where, *rows.shape[1:]) for rows, i, where in parts)
    captured = xp.cuda.get_current_stream().is_capturing()
    tables, key = CAPTURED if captured else TABLES, (xp, x.data.ptr, numbers)
    if key not in tables:
        if not captured and len(tables) >= MOST_TABLES:
            tables.clear()
        tables[key] = uploaded_aside(xp, numbers) if captured else xp.asarray(np.array(numbers, "int64"))
    widest = max(rows.shape[-1] for rows, *_ in parts)
    TOGETHER.launch("sums_together", (blocks(widest, WIDE), len(parts)), BLOCK, x, tables[key])


def uploaded_aside(xp, numbers):
    """A table that a graph reads, uploaded by another stream than the one that is captured, into the usual memory: it
    outlives the graph, whose own pool is freed with it."""
    usual = xp.get_default_memory_pool().malloc
    with xp.cuda.using_allocator(usual), xp.cuda.Stream(non_blocking=True) as aside:
        table = xp.asarray(np.array(numbers, "int64"))
        aside.synchronize()
    return table


add_sums.register(("cupy", "float32"), add_sums_cuda)


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
