"""Losses of bfloat16 and float16: computed in float32, which is also their dtype."""

from typing import Any, NamedTuple

from tinyvit.functional.contrastive import contrastive_loss
from tinyvit.functional.dino import dino_loss
from tinyvit.functional.distillation import distillation
from tinyvit.functional.masking import mean_squared_error
from tinyvit.functional.pixel_cross_entropy import pixel_cross_entropy
from tinyvit.functional.variational_bound import variational_bound
from tinyvit.kernels.cuda.cast import cast
from tinyvit.kernels.cuda.through_float32 import up
from tinyvit.operands import LOW_PRECISION


class LowLossCache(NamedTuple):
    exact: Any  # the reference's
    dtype: Any  # of the first argument


def forward_in_float32(operation):
    def forward(x, *others):
        loss, cache = operation.reference(up(x), *map(up, others))
        return loss, LowLossCache(cache, x.dtype)

    return forward


def backward_in_float32(backward):
    return lambda dy, cache: cast(backward.reference(up(dy), cache.exact), cache.dtype)


for operation in (
    distillation, dino_loss, contrastive_loss, mean_squared_error, pixel_cross_entropy, variational_bound,
):  # fmt: skip
    for dtype in LOW_PRECISION:
        operation.register(("cupy", dtype), forward_in_float32(operation))
    operation.backward.register_cache(LowLossCache, backward_in_float32(operation.backward))
