"""The linear layer y = x Wᵀ + b."""

from typing import NamedTuple

from tinyvit.arrays import Array
from tinyvit.dispatch import backward_of, operation
from tinyvit.functional.sums import as_rows, sum_rows


class LinearCache(NamedTuple):
    x: Array       # (..., in)
    weight: Array  # (out, in)
    has_bias: bool


def result_shape(cache):
    return *cache.x.shape[:-1], len(cache.weight)


def parameter_shapes(cache):
    shapes = cache.weight.shape, cache.weight.shape[:1]
    return shapes if cache.has_bias else shapes[:1]


@operation(arrays="x weight bias")
def linear(x, weight, bias=None):
    """Map every row of `x` (..., in) to y = x Wᵀ + b (..., out), with `weight` (out, in) and `bias` (out,).

    Raises ValueError if the shapes don't fit. Derived in notebooks/01.
    """
    check_shapes(x, weight, bias)
    y = as_rows(x) @ weight.mT
    if bias is not None:
        y = y + bias
    return y.reshape(*x.shape[:-1], weight.shape[0]), LinearCache(x, weight, bias is not None)


@backward_of(linear, result=result_shape, parameters=parameter_shapes, can_skip_inputs=True)
def linear_backward(dy, cache):
    """dx = dy W, dW = dyᵀ x and db = Σ dy, the last two summed over all rows.

    Returns (dx, dweight, dbias); without a bias, (dx, dweight).
    """
    x, weight, has_bias = cache
    dy_rows = as_rows(dy)
    dx = (dy_rows @ weight).reshape(x.shape)
    dweight = dy_rows.mT @ as_rows(x)
    return (dx, dweight, sum_rows(dy)) if has_bias else (dx, dweight)


def check_shapes(x, weight, bias):
    if weight.ndim != 2 or x.shape[-1:] != weight.shape[1:]:
        raise ValueError(f"linear: expected x (..., in) and weight (out, in), got {x.shape} and {weight.shape}")
    if bias is not None and bias.shape != weight.shape[:1]:
        raise ValueError(f"linear: expected bias {weight.shape[:1]}, got {bias.shape}")
