"""A batch gathered from its parts, for losses that mix samples."""

import os
from typing import Any, NamedTuple

from tinyvit.arrays import array_module
from tinyvit.dispatch import backward_of, operation


class GatherBatchCache(NamedTuple):
    shape: tuple  # (B, …)  of the whole batch
    where: slice  # the samples of this part in it
    join: Any     # how the parts of the batch are joined, or None


@operation
def gather_batch(x, join=None):
    """The rows of the whole batch (B, …), in order, where `x` (b, …) has those of a part of it.

    join   a function that takes a value of this part and returns those of all parts, in their order: `ctx.join`, which
           `train_step` sets. None: `x` is the whole batch

    `cache.where` is the slice of this part's rows. A contrastive loss compares them with all rows; `train_step` adds up
    the parts' losses, each by its share of the samples.
    """
    # A part doesn't know which one it is: it recognises its value among all.
    own = os.urandom(16)
    parts = [(own, x)] if join is None else join((own, x))
    place = [name for name, _ in parts].index(own)
    start = sum(len(rows) for _, rows in parts[:place])
    y = array_module(x).concatenate([rows for _, rows in parts])
    return y, GatherBatchCache(y.shape, slice(start, start + len(x)), join)


@backward_of(gather_batch, result=lambda cache: cache.shape)
def gather_batch_backward(dy, cache):
    """dx = Σ dy of this part's rows, over all parts: each has used them in its loss. All parts must call this."""
    _, where, join = cache
    if join is None:
        return dy.copy()
    first, *others = (part[where] for part in join(dy))
    return sum(others, start=first)
