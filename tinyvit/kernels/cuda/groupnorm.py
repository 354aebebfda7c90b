"""Group norm: x is kept instead of the normalised input, and the backward sums each channel of each sample first."""

from math import prod
from typing import NamedTuple

from tinyvit.backend import Array, array_module
from tinyvit.functional.batchnorm import check_channels
from tinyvit.functional.groupnorm import GroupNormCache, check_groups, group_norm, group_norm_backward
from tinyvit.kernels.cuda.cast import cast
from tinyvit.kernels.cuda.column_sums import add_column_sums_of
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

SOURCE = Source("groupnorm.cu", PACKED)
BLOCK, WARPS = 256, 8


class CudaGroupNormCache(NamedTuple):
    x: Array           # (B, C, …)
    statistics: Array  # (3, B, G) float32: 1 / standard deviation, mean, what its rounding has left of it
    weight: Array      # (C,) float32

    shape = property(lambda self: self.x.shape)
    rstd = property(lambda self: self.statistics[0][..., None])  # (B, G, 1)

    @property
    def xhat(self):
        """The normalised input (B, C, …), float32, recomputed."""
        rstd, mean, rest = self.statistics[..., None]
        groups = cast(self.x, "float32").reshape(*rstd.shape[:2], -1)
        return ((groups - mean - rest) * rstd).reshape(self.x.shape)


def group_norm_cuda(x, weight, bias, num_groups, eps=1e-5):
    check_channels("group_norm", x, weight, bias)
    check_groups(x, num_groups)
    if not weight.dtype == bias.dtype == "float32":
        return run_reference(group_norm, x, weight, bias, num_groups, eps)
    x, weight, bias = contiguous(x), contiguous(weight), contiguous(bias)
    y, statistics = empty_like(x), array_module(x).empty((3, len(x), num_groups), "float32")
    rows, C = len(x) * num_groups, x.shape[1]
    launch("group_norm_forward", rows, (x, weight, bias, y, statistics, float(eps), rows, C), (x, y), num_groups)
    return y, CudaGroupNormCache(x, statistics, weight)


def group_norm_backward_cuda(dy, cache, into):
    x, statistics, weight = cache
    if dy.dtype != x.dtype:
        return run_reference(group_norm_backward, dy, GroupNormCache(cache.xhat, cache.rstd, weight))
    dy, (B, C), groups = contiguous(dy), x.shape[:2], statistics.shape[-1]
    dx, sums, arrays = empty_like(dy), array_module(x).empty((2, B, C), "float32"), (dy, x)
    launch("group_norm_sums", blocks(B * C, WARPS), (dy, x, statistics, sums, B * C), arrays, groups)
    arguments = dy, x, statistics, weight, sums, dx, B * groups, C
    launch("group_norm_backward", B * groups, arguments, (*arrays, dx), groups)
    return dx, *add_column_sums_of(sums, into)


def launch(name, grid, arguments, arrays, groups):
    """A kernel that reads and writes `arrays` (B, C, …)."""
    x, each, S = arrays[0], arrays[0].shape[1] // groups, prod(arrays[0].shape[2:])
    SOURCE.launch(name, grid, BLOCK, *arguments, each, S, T=type_of(x), PACK=pack_of(S, *arrays))


for kind in KINDS:
    group_norm.register(kind, group_norm_cuda)
group_norm_backward.register_cache(CudaGroupNormCache, group_norm_backward_cuda)
