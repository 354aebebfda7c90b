"""Layer norm in one pass forward and one back, of x or of x and a residual branch.

The backward also sums the parameters' gradients over the rows of each block; `column_sums` adds up the blocks' sums.
"""

from typing import NamedTuple

from tinyvit.backend import Array, array_module
from tinyvit.functional.layernorm import LayerNormCache, fits, layernorm, layernorm_backward
from tinyvit.kernels.cuda.column_sums import add_sums_of_blocks, share_of
from tinyvit.kernels.cuda.dropout import NO_KEY
from tinyvit.kernels.cuda.source import (
    KINDS,
    PACKED,
    TYPED,
    Source,
    blocks,
    contiguous,
    empty_like,
    pack_of,
    run_reference,
    type_of,
)

LANES = (8, 16, 32)  # numbers that a thread may hold
SHORT = Source(
    "layernorm.cu",
    [{**packed, "LANE": lane} for packed in PACKED for lane in LANES if packed["PACK"] > 1 or lane == LANES[-1]],
)
LONG = Source("layernorm_long.cu", PACKED)
XHAT = Source("layernorm_xhat.cu", TYPED)
LONGEST = 32 * LANES[-1]  # numbers in a row that a warp can hold
BLOCK, WARPS = 256, 8
MOST_FORWARD, MOST_BACKWARD = 1024, 512  # blocks, which have as many rows then as there are


class CudaLayerNormCache(NamedTuple):
    x: Array           # (..., D)
    statistics: Array  # (3, rows) float32: mean, what its rounding has left of it, 1 / standard deviation
    weight: Array      # (D,) float32

    @property
    def mean(self):
        """The mean (..., 1), float32."""
        return self.statistics[0].reshape(*self.x.shape[:-1], 1)

    @property
    def rstd(self):
        """1 / standard deviation (..., 1), float32."""
        return self.statistics[2].reshape(*self.x.shape[:-1], 1)

    @property
    def xhat(self):
        """The normalised input (..., D), float32, recomputed."""
        x = self.x
        xhat, D = empty_like(x, "float32"), x.shape[-1]
        rows = x.size // D if D else 0
        grid = blocks(x.size, BLOCK)
        XHAT.launch("layernorm_xhat", grid, BLOCK, x, self.statistics, xhat, rows, D, T=type_of(x))
        return xhat


def layernorm_cuda(x, weight, bias, eps=1e-6):
    if not fits(x, weight, bias):
        return layernorm.reference(x, weight, bias, eps)  # raises
    if not weight.dtype == bias.dtype == "float32":
        return run_reference(layernorm, x, weight, bias, eps)
    _, y, cache = normalised(x, None, weight, bias, eps)
    return y, cache


def layernorm_backward_cuda(dy, cache, into):
    if dy.dtype == cache.x.dtype:
        return gradients(dy, None, cache, into)
    return run_reference(layernorm_backward, dy, LayerNormCache(cache.xhat, cache.rstd, cache.weight))


def normalised(x, branch, weight, bias, eps, offset=None, drop=(*NO_KEY, 1.0, 1.0, 1)):
    """(x + branch, its layer norm, cache); without a branch, (None, layer norm of x, cache).

    offset, drop   of a branch that lacks its bias (D,), and how samples are dropped: as `dropout.of_rows` says
    """
    x, branch, weight, bias, offset = (
        None if array is None else contiguous(array) for array in (x, branch, weight, bias, offset)
    )
    D = x.shape[-1]
    rows = x.size // D if D else 0
    y, total = empty_like(x), None if branch is None else empty_like(x)
    statistics = array_module(x).empty((3, rows), "float32")
    given = [array for array in (x, y, weight, bias, branch, total, offset) if array is not None]
    arguments = x, branch, offset, *drop, weight, bias, float(eps), total, y, statistics, rows, D
    start(rows, MOST_FORWARD, pack_of(D, *given), "forward", *arguments)
    return total, y, CudaLayerNormCache(x if branch is None else total, statistics, weight)


def gradients(dy, dsum, cache, into, dbranch=None, drop=None):
    """(dx, dweight, dbias), where dsum, if there is one, is part of dx.

    drop   of a branch that was added without its bias, as for `normalised`: the last gradient is then that of the bias,
           and dbranch, unless it is None, is filled with that of the branch. For rows that a warp can hold
    """
    dy, dsum = (None if array is None else contiguous(array) for array in (dy, dsum))
    x, statistics, weight = cache
    dx, rows, D = empty_like(dy), statistics.shape[1], x.shape[-1]
    pack = pack_of(D, *(array for array in (dy, x, dx, weight, dsum, dbranch) if array is not None))
    wanted, empty = any(goal is not False for goal in into), array_module(x).empty
    arguments = dy, x, statistics, weight, dsum, dx
    partial = None
    if D <= LONGEST:
        if wanted:
            partial = empty((len(into), blocks_of_backward(rows), D), "float32")
        if drop is None:
            start(rows, MOST_BACKWARD, pack, "backward", *arguments, partial, rows, D)
        else:
            start(rows, MOST_BACKWARD, pack, "branch_backward", *arguments, partial, dbranch, *drop, rows, D)
    else:
        start(rows, None, pack, "backward", *arguments, rows, D)
        if wanted:
            share = share_of(rows)
            partial = empty((2, blocks(rows, share), D), "float32")
            grid, constants = (blocks(D, 32 * pack), partial.shape[1]), {"T": type_of(x), "PACK": pack}
            LONG.launch(
                "layernorm_long_columns", grid, BLOCK, dy, x, statistics, partial, rows, D, share, **constants
            )
    return dx, *(add_sums_of_blocks(partial, into) if wanted else (None,) * len(into))


def blocks_of_backward(rows):
    """How many blocks share the rows of a backward."""
    return min(blocks(rows, WARPS), MOST_BACKWARD)


def start(rows, most, pack, name, *arguments):
    """Launch the kernel for rows of this length; the first argument says of which type."""
    x = arguments[0]
    D, T = x.shape[-1], type_of(x)
    if D > LONGEST:
        LONG.launch(f"layernorm_long_{name}", rows, BLOCK, *arguments, T=T, PACK=pack)
        return
    lane = next(lane for lane in LANES if 32 * lane >= D) if pack > 1 else LANES[-1]
    SHORT.launch(f"layernorm_{name}", min(blocks(rows, WARPS), most), BLOCK, *arguments, T=T, PACK=pack, LANE=lane)


for kind in KINDS:
    layernorm.register(kind, layernorm_cuda)
layernorm_backward.register_cache(CudaLayerNormCache, layernorm_backward_cuda)
