"""Sums over many rows that keep their digits in float32.

NumPy adds up the rows of a leading axis one after the other, so that the rounding error grows with their number. In
stages of 16 it grows with the number of stages, as in PyTorch.
"""

from tinyvit.arrays import array_module

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
