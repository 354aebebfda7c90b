"""Layer norm in one pass forward and one back.

The backward also sums the parameters' gradients over the rows of each block; `column_sums` adds up the blocks' sums.
"""

from typing import NamedTuple

from tinyvit.arrays import Array, array_module
from tinyvit.functional.layernorm import LayerNormCache, fits, layernorm, layernorm_backward
from tinyvit.kernels.cuda.cast import cast
from tinyvit.kernels.cuda.column_sums import add_sums_of_blocks
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

# Threads that share a row, and numbers that each may hold, by how many these are together. With (8, 24) a row of 192
# takes 110 instructions forwards and 125 backwards, with (32, 8) it took 285 and 263. It wasn't measured on a card.
SHAPES = ((8, 8), (8, 16), (8, 24), (16, 16), (16, 24), (32, 16), (32, 24), (32, 32), (256, 8), (256, 32))
SINGLE = ((32, 32), (256, 32))  # the same for threads that load one number at a time
SOURCE = Source(
    "layernorm.cu",
    [
        {**packed, "SPAN": span, "LANE": lane}
        for packed in PACKED
        for span, lane in (SHAPES if packed["PACK"] > 1 else SINGLE)
    ],
)
LONGEST = 256 * 32  # numbers in a row
BLOCK = 256
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
        rest = self.statistics[1].reshape(*self.x.shape[:-1], 1)
        return (cast(self.x, "float32") - self.mean - rest) * self.rstd


def layernorm_cuda(x, weight, bias, eps=1e-6):
    if not fits(x, weight, bias):
        return layernorm.reference(x, weight, bias, eps)  # raises
    if not weight.dtype == bias.dtype == "float32" or x.shape[-1] > LONGEST:
        return run_reference(layernorm, x, weight, bias, eps)
    x, weight, bias = map(contiguous, (x, weight, bias))
    D = x.shape[-1]
    y, rows = empty_like(x), x.size // D
    statistics = array_module(x).empty((3, rows), "float32")
    arguments = x, weight, bias, float(eps), y, statistics, rows, D
    launch("forward", MOST_FORWARD, pack_of(D, x, y, weight, bias), arguments)
    return y, CudaLayerNormCache(x, statistics, weight)


def layernorm_backward_cuda(dy, cache, into):
    x, statistics, weight = cache
    if dy.dtype != x.dtype:
        return run_reference(layernorm_backward, dy, LayerNormCache(cache.xhat, cache.rstd, weight))
    dy = contiguous(dy)
    dx, rows, D = empty_like(dy), statistics.shape[1], x.shape[-1]
    pack = pack_of(D, dy, x, dx, weight)
    wanted, parts = any(goal is not False for goal in into), blocks_of_backward(rows, D, pack)
    partial = array_module(x).empty((2, parts, D), "float32") if wanted else None
    launch("backward", MOST_BACKWARD, pack, (dy, x, statistics, weight, dx, partial, rows, D))
    return dx, *(add_sums_of_blocks(partial, into) if wanted else (None, None))


def shape_for(D, pack):
    """How many threads share a row of D numbers, and how many of them each holds."""
    return next((span, lane) for span, lane in (SHAPES if pack > 1 else SINGLE) if span * lane >= D)


def blocks_of_backward(rows, D, pack):
    """How many blocks share the rows of a backward."""
    return min(blocks(rows, BLOCK // shape_for(D, pack)[0]), MOST_BACKWARD)


def launch(name, most, pack, arguments):
    """Start at most `most` blocks of a kernel; `arguments` begin with x, and end with how many rows of which length."""
    *_, rows, D = arguments
    span, lane = shape_for(D, pack)
    SOURCE.launch(
        f"layernorm_{name}", min(blocks(rows, BLOCK // span), most), BLOCK, *arguments, T=type_of(arguments[0]),
        PACK=pack, SPAN=span, LANE=lane,
    )  # fmt: skip


for kind in KINDS:
    layernorm.register(kind, layernorm_cuda)
layernorm_backward.register_cache(CudaLayerNormCache, layernorm_backward_cuda)
