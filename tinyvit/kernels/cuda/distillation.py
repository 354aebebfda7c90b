"""Distillation of logits in bfloat16 and float16: computed in float32, which is also the loss's dtype."""

from typing import Any, NamedTuple

from tinyvit.dispatch import LOW_PRECISION
from tinyvit.functional.distillation import DistillationCache, distillation, distillation_backward
from tinyvit.kernels.cuda.cast import cast
from tinyvit.kernels.cuda.through_float32 import up


class LowDistillationCache(NamedTuple):
    exact: DistillationCache
    dtype: Any  # of the logits


def distillation_low(logits, teacher, temperature=1.0):
    loss, cache = distillation.reference(up(logits), up(teacher), temperature)
    return loss, LowDistillationCache(cache, logits.dtype)


def distillation_backward_low(dy, cache):
    return cast(distillation_backward.reference(up(dy), cache.exact), cache.dtype)


for dtype in LOW_PRECISION:
    distillation.register(("cupy", dtype), distillation_low)
distillation_backward.register_cache(LowDistillationCache, distillation_backward_low)
