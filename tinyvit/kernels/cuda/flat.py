"""The sum of squares of a flat array in two stages, always in the same order, and a moving average in one pass."""

from tinyvit.arrays import array_module
from tinyvit.functional.flat import move_average, require_alike, squared_norm
from tinyvit.kernels.cuda.source import Source, blocks, contiguous, pack_of

SOURCE = Source("flat.cu", [{"PACK": 1}, {"PACK": 4}])
BLOCK = 256
MAX_BLOCKS = 1024    # blocks that share the sum
LAST_THREADS = 1024    # threads of the block that adds up theirs


def squared_norm_cuda(x):
    xp, x = array_module(x), contiguous(x)
    pack = pack_of(x.size, x)
    share = min(blocks(x.size, pack * BLOCK), MAX_BLOCKS)
    sums = xp.empty((share,), "float32")
    SOURCE.launch("sum_squares", share, BLOCK, x, sums, x.size, PACK=pack)
    return total_of(sums, pack)


def total_of(sums, pack=1):
    """The sum of a few thousand numbers at most (n,), a scalar on the device, by the module compiled for this pack."""
    total = array_module(sums).zeros((), "float32")
    SOURCE.launch("sum_of_sums", min(sums.size, 1), LAST_THREADS, sums, total, sums.size, PACK=pack)
    return total


def move_average_cuda(average, x, share):
    require_alike(move_average, average=average, x=x)
    if not (average.flags.c_contiguous and x.dtype == "float32"):
        return move_average.reference(average, x, share)
    x, pack = contiguous(x), pack_of(average.size, average, x)
    on_host = isinstance(share, (int, float))
    there, here = (None, float(share)) if on_host else (share.astype("float32", copy=False), 0.0)
    SOURCE.launch(
        "move_average", blocks(average.size, pack * BLOCK), BLOCK, average, x, average.size, there, here, PACK=pack
    )


squared_norm.register(("cupy", "float32"), squared_norm_cuda)
move_average.register(("cupy", "float32"), move_average_cuda)
