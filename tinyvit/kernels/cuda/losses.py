"""Losses of bfloat16 and float16: computed in float32, which is also their dtype."""

from typing import Any, NamedTuple

from tinyvit.dispatch import LOW_PRECISION
from tinyvit.functional.contrastive import contrastive_loss, contrastive_loss_backward
from tinyvit.functional.dino import dino_loss, dino_loss_backward
from tinyvit.functional.distillation import distillation, distillation_backward
from tinyvit.functional.masking import mean_squared_error, mean_squared_error_backward
from tinyvit.functional.variational_bound import variational_bound, variational_bound_backward
from tinyvit.kernels.cuda.cast import cast
from tinyvit.kernels.cuda.through_float32 import up


class LowDistillationCache(NamedTuple):
    exact: Any  # the reference's
    dtype: Any  # of the logits


class LowDinoLossCache(NamedTuple):
    exact: Any
    dtype: Any


class LowSquaredErrorCache(NamedTuple):
    exact: Any
    dtype: Any  # of x


class LowContrastiveLossCache(NamedTuple):
    exact: Any
    dtype: Any


class LowVariationalBoundCache(NamedTuple):
    exact: Any
    dtype: Any  # of x


def forward_in_float32(operation, cache_type):
    def forward(x, *others):
        loss, cache = operation.reference(up(x), *map(up, others))
        return loss, cache_type(cache, x.dtype)

    return forward


def backward_in_float32(backward):
    return lambda dy, cache: cast(backward.reference(up(dy), cache.exact), cache.dtype)


for operation, backward, cache_type in (
    (distillation, distillation_backward, LowDistillationCache),
    (dino_loss, dino_loss_backward, LowDinoLossCache),
    (contrastive_loss, contrastive_loss_backward, LowContrastiveLossCache),
    (mean_squared_error, mean_squared_error_backward, LowSquaredErrorCache),
    (variational_bound, variational_bound_backward, LowVariationalBoundCache),
):
    for dtype in LOW_PRECISION:
        operation.register(("cupy", dtype), forward_in_float32(operation, cache_type))
    backward.register_cache(cache_type, backward_in_float32(backward))
