"""Batch norm: a channel's numbers in pieces, whose moments are combined, so that its digits don't depend on its mean.

x is read twice forward; back, x and dy are read twice. What is kept is x itself, not x̂.
"""

from math import prod
from typing import Any, NamedTuple

from tinyvit.backend import Array, array_module
from tinyvit.functional.batchnorm import (
    BatchNormCache,
    RunningNormCache,
    batch_norm,
    batch_norm_backward,
    batch_norm_running,
    batch_norm_running_backward,
    check_channels,
    check_count,
    per_channel,
    sum_of_parts,
)
from tinyvit.kernels.cuda.cast import cast
from tinyvit.kernels.cuda.column_sums import destination
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

SOURCE, COMBINED = Source("batchnorm.cu", PACKED), Source("batchnorm_pieces.cu", [{}])
BLOCK, WARPS = 256, 8
PIECE = 32 * BLOCK  # numbers of a channel that a block processes
RSTD, MEAN, REST, SQUARES, VARIANCE = range(5)  # rows of `statistics`


def xhat_of(cache):
    """The normalised input (B, C, …), float32, recomputed."""
    x = cast(cache.x, "float32")
    rstd, mean, rest = (per_channel(values, x) for values in cache.statistics[:SQUARES])
    return (x - mean - rest) * rstd


class CudaBatchNormCache(NamedTuple):
    x: Array           # (B, C, …)
    statistics: Array  # (5, C) float32: 1 / standard deviation, mean, what its rounding has left of it, …
    weight: Array      # (C,) float32
    count: int         # values of a channel in the batch
    join: Any          # how the parts of the batch are joined, or None

    shape = property(lambda self: self.x.shape)
    xhat = property(xhat_of)
    rstd = property(lambda self: self.statistics[RSTD])          # (C,)
    mean = property(lambda self: self.statistics[MEAN])          # (C,)
    variance = property(lambda self: self.statistics[VARIANCE])  # (C,) unbiased


class CudaRunningNormCache(NamedTuple):
    x: Array           # (B, C, …)
    statistics: Array  # (3, C) float32: 1 / standard deviation, mean, 0
    weight: Array      # (C,) float32

    shape = property(lambda self: self.x.shape)
    xhat = property(xhat_of)
    rstd = property(lambda self: self.statistics[RSTD])  # (C,)


def batch_norm_cuda(x, weight, bias, eps=1e-5, join=None):
    check_channels("batch_norm", x, weight, bias)
    if not weight.dtype == bias.dtype == "float32":
        return run_reference(batch_norm, x, weight, bias, eps, join)
    x, weight, bias, xp = contiguous(x), contiguous(weight), contiguous(bias), array_module(x)
    C, count, counts = x.shape[1], x.size // x.shape[1], None
    partial, statistics = xp.empty((3, C, pieces(x)), "float32"), xp.empty((5, C), "float32")
    launch("batch_norm_moments", x, (x, partial), pieces(x))
    if join is not None:
        combine(partial, None, statistics, eps, count)
        parts = join((statistics, count))
        counts = xp.asarray([n for _, n in parts], "float32")
        count = sum(n for _, n in parts)
        partial = xp.stack([part[MEAN:VARIANCE] for part, _ in parts], axis=-1)
        statistics = xp.empty((5, C), "float32")  # the other parts may still read this one's own
    check_count(x, count)
    combine(partial, counts, statistics, eps, count)
    y = empty_like(x)
    launch("batch_norm_forward", x, (x, statistics, weight, bias, y))
    return y, CudaBatchNormCache(x, statistics, weight, count, join)


def combine(partial, counts, statistics, eps, count):
    """Write the statistics (5, C) of all parts, of as many numbers as `counts` says, from partial (3, C, parts)."""
    _, C, parts = partial.shape
    arguments = partial, counts, statistics, float(eps), C, parts, PIECE, count
    COMBINED.launch("batch_norm_statistics", blocks(C, WARPS), BLOCK, *arguments)


def batch_norm_backward_cuda(dy, cache, into):
    """As `functional.batch_norm_backward`; the sums over dy are needed even where no parameter wants them."""
    if dy.dtype != cache.x.dtype:
        fields = cache.xhat, cache.rstd, cache.weight, cache.mean, cache.variance, cache.count, cache.join
        return run_reference(batch_norm_backward, dy, BatchNormCache(*fields))
    dy, totals = contiguous(dy), array_module(dy).empty((2, dy.shape[1]), "float32")
    dweight, dbias = add_channel_sums(dy, cache, into, totals)
    (totals,) = sum_of_parts((totals,), cache.join)
    return gradient(dy, cache, totals, 1 / cache.count), dweight, dbias


def batch_norm_running_cuda(x, weight, bias, mean, variance, eps=1e-5):
    check_channels("batch_norm_running", x, weight, bias)
    if not all(getattr(statistic, "shape", None) == weight.shape for statistic in (mean, variance)):
        return batch_norm_running.reference(x, weight, bias, mean, variance, eps)  # raises
    if not weight.dtype == bias.dtype == "float32":
        return run_reference(batch_norm_running, x, weight, bias, mean, variance, eps)
    mean, variance = (statistic.astype("float32", copy=False) for statistic in (mean, variance))
    x, *parameters = map(contiguous, (x, mean, variance, weight, bias))
    y, statistics = empty_like(x), array_module(x).empty((3, x.shape[1]), "float32")
    launch("batch_norm_running", x, (x, *parameters, y, statistics, float(eps)))
    return y, CudaRunningNormCache(x, statistics, contiguous(weight))


def batch_norm_running_backward_cuda(dy, cache, into):
    if dy.dtype != cache.x.dtype:
        fields = RunningNormCache(cache.xhat, cache.rstd, cache.weight)
        return run_reference(batch_norm_running_backward, dy, fields)
    dy = contiguous(dy)
    return gradient(dy, cache, None, 0.0), *add_channel_sums(dy, cache, into)


def gradient(dy, cache, totals, share):
    dx = empty_like(dy)
    launch("batch_norm_backward", dy, (dy, cache.x, cache.statistics, cache.weight, totals, dx, share))
    return dx


def add_channel_sums(dy, cache, into, totals=None):
    """(Σ dy x̂, Σ dy), each (C,), over all but the channels, added to the two arrays `into` where a kernel can.

    Entries of `into` are as for `column_sums.add_column_sums`; both sums are also written to totals (2, C), if given.
    """
    xp, C = array_module(dy), dy.shape[1]
    dweight, dbias = goals = [destination(goal, C, xp) for goal in into]
    if totals is None and dweight is dbias is None:
        return goals
    partial = xp.empty((2, C, pieces(dy)), "float32")
    launch("channel_sums", dy, (dy, cache.x, cache.statistics, partial), pieces(dy))
    add_totals(partial, totals, dweight, dbias)
    return goals


def sum_per_channel(dy, into=None):
    """Σ dy over all but the channels of dy (B, C, …): (C,). `into` is as for `column_sums.add_column_sums`."""
    xp, C, dy = array_module(dy), dy.shape[1], contiguous(dy)
    total = destination(into, C, xp)
    if total is not None and dy.size:
        partial = xp.empty((1, C, pieces(dy)), "float32")
        launch("channel_sums", dy, (dy, None, None, partial), pieces(dy))
        add_totals(partial, None, None, total)
    return total


def add_totals(partial, totals, dweight, dbias):
    _, C, parts = partial.shape
    COMBINED.launch("channel_totals", blocks(C, WARPS), BLOCK, partial, totals, dweight, dbias, C, parts)


def pieces(x):
    """How many pieces a channel of x (B, C, …) has."""
    return blocks(x.size // x.shape[1], PIECE)


def launch(name, x, arguments, *more):
    """A kernel with a block for each piece of each channel of x (B, C, …)."""
    (B, C), S = x.shape[:2], prod(x.shape[2:])
    pack = pack_of(S, x, *(array for array in arguments if getattr(array, "shape", None) == x.shape))
    SOURCE.launch(name, C * pieces(x), BLOCK, *arguments, B, C, S, *more, T=type_of(x), PACK=pack)


for kind in KINDS:
    batch_norm.register(kind, batch_norm_cuda)
    batch_norm_running.register(kind, batch_norm_running_cuda)
batch_norm_backward.register_cache(CudaBatchNormCache, batch_norm_backward_cuda)
batch_norm_running_backward.register_cache(CudaRunningNormCache, batch_norm_running_backward_cuda)
