"""Dropout and stochastic depth in one pass, with the bits of `keys.Key.uniform` and no mask in memory."""

from math import prod
from typing import Any, NamedTuple

import numpy as np

from tinyvit.functional.dropout import (
    DropoutCache,
    drop_path,
    drop_path_backward,
    dropout,
    dropout_backward,
)
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
from tinyvit.keys import Key
from tinyvit.operands import kind as kind_of

SOURCE = Source("dropout.cu", PACKED)
BLOCK = 256


class CudaDropoutCache(NamedTuple):
    first: Any               # what the key gives the first sample, as `Key.start`; None where nothing was dropped
    keep: float              # the probability of being kept
    shape: tuple             # of x
    whole: bool              # whether samples were dropped whole

    @property
    def mask(self):
        """True where an entry was kept, recomputed; None where nothing was dropped."""
        if self.first is None:
            return None
        import cupy

        shape = (self.shape[0],) + (1,) * (len(self.shape) - 1) if self.whole else self.shape
        return drop_entries(cupy.ones(shape, "float32"), self._replace(whole=False)) != 0


def as_arguments(first):
    """The two arguments of a kernel for what a key gives the first sample: a number, and an address or None."""
    return (first, None) if isinstance(first, np.uint64) else (np.uint64(0), first)


def dropout_cuda(x, rate, key=None):
    return drop(dropout, x, rate, key, False)


def drop_path_cuda(x, rate, key=None):
    return drop(drop_path, x, rate, key, True)


def drop(operation, x, rate, key, whole):
    cache = cache_of(operation, x, rate, key, whole)
    return (x if cache.first is None else drop_entries(x, cache)), cache


def cache_of(operation, x, rate, key, whole):
    """The cache of an array like x, of which nothing is computed."""
    if not 0 <= rate < 1 or not x.ndim:
        return operation.reference(x, rate, key)  # raises
    if key is None or rate == 0:
        return CudaDropoutCache(None, 1.0, x.shape, whole)
    key = Key(key) if isinstance(key, int) else key
    return CudaDropoutCache(key.start(), 1.0 - rate, x.shape, whole)


def dropout_backward_cuda(dy, cache):
    return drop_entries_backward(dropout_backward, dy, cache)


def drop_path_backward_cuda(dy, cache):
    return drop_entries_backward(drop_path_backward, dy, cache)


def drop_entries_backward(operation, dy, cache):
    if cache.first is None:
        return dy
    if kind_of(dy) not in KINDS:
        return run_reference(operation, dy, DropoutCache(cache.mask, cache.keep, cache.shape))
    return drop_entries(dy, cache)


def drop_entries(x, cache):
    """x · mask / keep."""
    x, entries = contiguous(x), prod(x.shape[1:])
    y = empty_like(x)
    pack = pack_of(entries, x, y)
    arguments = x, y, *as_arguments(cache.first), cache.keep, 1 / cache.keep, entries, int(cache.whole), x.size
    SOURCE.launch("dropout", blocks(x.size, pack * BLOCK), BLOCK, *arguments, T=type_of(x), PACK=pack)
    return y


for kind in KINDS:
    dropout.register(kind, dropout_cuda)
    drop_path.register(kind, drop_path_cuda)
dropout_backward.register_cache(CudaDropoutCache, dropout_backward_cuda)
drop_path_backward.register_cache(CudaDropoutCache, drop_path_backward_cuda)
