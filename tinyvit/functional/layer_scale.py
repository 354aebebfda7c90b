"""A factor for each feature: the last step of a residual branch that begins small."""

from typing import NamedTuple

from tinyvit.arrays import Array
from tinyvit.dispatch import backward_of, operation
from tinyvit.functional.sums import sum_rows


class LayerScaleCache(NamedTuple):
    x: Array       # (..., D)
    weight: Array  # (D,)


@operation(arrays="x weight")
def layer_scale(x, weight):
    """y = x · weight for tokens `x` (..., D) and a factor for each feature, (D,).

    Touvron et al. 2021, "Going deeper with image transformers", eq. 4.
    """
    if not x.ndim or weight.shape != x.shape[-1:]:
        raise ValueError(f"layer_scale: expected x (..., D) and weight (D,), got {x.shape} and {weight.shape}")
    return x * weight, LayerScaleCache(x, weight)


@backward_of(layer_scale, result=lambda cache: cache.x.shape, parameters=lambda cache: [cache.weight.shape])
def layer_scale_backward(dy, cache):
    """Returns (dx, dweight): a factor was used by all tokens, so its gradient is a sum over them."""
    return dy * cache.weight, sum_rows(dy * cache.x)
