"""Zeros around feature maps."""

from typing import NamedTuple

from tinyvit.arrays import array_module
from tinyvit.dispatch import backward_of, operation


class ZeroPadCache(NamedTuple):
    shape: tuple    # (B, C, H, W) of what came in
    padding: tuple  # (top, bottom, left, right)


def padded_shape(cache):
    (B, C, H, W), (top, bottom, left, right) = cache
    return B, C, top + H + bottom, left + W + right


@operation(any_dtype="x")
def zero_pad2d(x, padding):
    """Put zeros around maps `x` (B, C, H, W): `padding` (top, bottom, left, right) rows and columns of them.

    For sides that differ, as TensorFlow's "same" padding has them; `conv2d` pads alike on both sides by itself.
    """
    if x.ndim != 4 or len(padding) != 4 or min(padding) < 0:
        raise ValueError(
            f"zero_pad2d: expected x (B, C, H, W) and padding (top, bottom, left, right) of at least 0, got {x.shape} "
            f"and {padding}"
        )
    cache = ZeroPadCache(x.shape, tuple(padding))
    y = array_module(x).zeros(padded_shape(cache), x.dtype)
    y[inside(cache)] = x
    return y, cache


@backward_of(zero_pad2d, result=padded_shape)
def zero_pad2d_backward(dy, cache):
    """The gradient of the zeros is dropped."""
    return dy[inside(cache)]


def inside(cache):
    """The index of the maps between the zeros."""
    (_, _, H, W), (top, _, left, _) = cache
    return ..., slice(top, top + H), slice(left, left + W)
