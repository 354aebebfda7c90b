"""Sums over many rows that keep their digits in float32.

NumPy adds up the rows of a leading axis one after the other, so that the rounding error grows with their number. In
stages of 16 it grows with the number of stages, as in PyTorch.
"""

from contextlib import contextmanager
from operator import itemgetter
from typing import NamedTuple

import numpy as np

from tinyvit.backend import Array, array_module, scope, scoped
from tinyvit.dispatch import operation

STAGE = 16


def as_rows(x):
    """(..., D) as (rows, D): one large matrix product is several times faster than many small ones."""
    return x.reshape(-1, x.shape[-1])


def sum_rows(x):
    """The sum of all rows of x (..., D): (D,)."""
    return sum_first(as_rows(x))


def sum_first(x):
    """The sum over the first axis of x, in stages."""
    while len(x) > STAGE:
        whole = len(x) // STAGE * STAGE
        stages = x[:whole].reshape(-1, STAGE, *x.shape[1:]).sum(1)
        x = array_module(x).concatenate([stages, x[whole:]])
    return x.sum(0)


def sum_to_shape(x, shape):
    """The gradient of an array of `shape` that was broadcast to x's: the sum over every repetition."""
    if x.shape == shape:
        return x
    padded = (1,) * (x.ndim - len(shape)) + tuple(shape)
    if padded[-1] == 1:
        x = x.sum(-1, keepdims=True)  # NumPy keeps the digits of a sum along a row by itself
    repeated = [axis for axis in range(x.ndim) if padded[axis] == 1]
    kept = [axis for axis in range(x.ndim) if padded[axis] != 1]
    x = x.transpose(*repeated, *kept)
    return sum_first(x.reshape(-1, *x.shape[len(repeated) :])).reshape(shape)


class Left(NamedTuple):
    """Sums that are still to be added to a flat array."""

    x: Array     # the flat array
    parts: list  # of (rows (count, R, D), i, where): Σ rows[i] is to be added to x[where : where + D]


@contextmanager
def sums_together(x):
    """Inside this, a GPU may leave the last stage of sums over rows that go into parts of the flat array `x`.

    One kernel does all of them at its end, or when `finish_sums` is called; until then `x` lacks them.
    """
    if array_module(x) is np:
        yield
        return
    with scoped(sums=Left(x, [])):
        yield
        finish_sums()


def finish_sums():
    """Add what was left inside the innermost `sums_together`, if there is one."""
    left = scope().sums
    if left is None:
        return
    parts = sorted(left.parts, key=itemgetter(2))
    left.parts.clear()
    while parts:
        now, later, stop = [], [], 0
        for part in parts:  # what overlaps the one before, as if a parameter was used twice, waits for the next round
            rows, _, where = part
            if where < stop:
                later.append(part)
            else:
                now.append(part)
                stop = where + rows.shape[-1]
        add_sums(left.x, tuple(now))
        parts = later


@operation
def add_sums(x, parts):
    """x[where : where + D] += Σ rows[i] for each (rows (count, R, D), i, where) of the parts, in place.

    No two of them overlap.
    """
    for rows, i, where in parts:
        x[where : where + rows.shape[-1]] += sum_first(rows[i])


add_sums.in_place = ("x",)
