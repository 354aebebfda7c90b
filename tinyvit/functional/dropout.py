"""Dropout of single entries, and of a sample's whole residual branch (stochastic depth)."""

from typing import NamedTuple

from tinyvit.arrays import Array, array_module
from tinyvit.dispatch import backward_of, operation
from tinyvit.keys import Key


class DropoutCache(NamedTuple):
    mask: Array | None  # bool, broadcasts to x: True where an entry was kept; None where nothing was dropped
    keep: float         # the probability of being kept
    shape: tuple        # of x


@operation
def dropout(x, rate, key=None):
    """Drop each entry of `x` (B, ...) with probability `rate`, and divide the rest by 1 − rate to keep the mean.

    The mask is a function of `key` (a `tinyvit.Key`, or an int for its seed) and nothing else; without a key, as
    in inference, x comes back as it is. Srivastava et al. 2014, "Dropout". Derived in notebooks/06.
    """
    return drop(x, rate, key, x.shape)


@backward_of(dropout, result=lambda cache: cache.shape)
def dropout_backward(dy, cache):
    """dx = dy · mask / keep: what was dropped gets no gradient."""
    return dy if cache.mask is None else dy * cache.mask * (1 / cache.keep)


@operation
def drop_path(x, rate, key=None):
    """Drop whole samples of `x` (B, ...) with probability `rate`, and divide the rest by 1 − rate.

    On a residual branch this skips the block for that sample: Huang et al. 2016, "Deep networks with
    stochastic depth". The key is that of `dropout`.
    """
    return drop(x, rate, key, x.shape[:1] + (1,) * (x.ndim - 1))


@backward_of(drop_path, result=lambda cache: cache.shape)
def drop_path_backward(dy, cache):
    """dx = dy · mask / keep: what was dropped gets no gradient."""
    return dy if cache.mask is None else dy * cache.mask * (1 / cache.keep)


def drop(x, rate, key, mask_shape):
    if not 0 <= rate < 1:
        raise ValueError(f"the rate of dropout must be at least 0 and below 1, got {rate}")
    if not x.ndim:
        raise ValueError("dropout: expected x (B, ...), got a number")
    if key is None or rate == 0:
        return x, DropoutCache(None, 1.0, x.shape)
    key = Key(key) if isinstance(key, int) else key
    keep = 1 - rate
    mask = key.uniform(mask_shape, array_module(x)) < keep
    return x * mask * (1 / keep), DropoutCache(mask, keep, x.shape)
