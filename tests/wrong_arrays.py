"""A worker that passes wrong arrays to operations and reports the errors, one line of JSON per case.

A compiled kernel that trusts a shape ends its process, so the tests keep this one apart from their own.
"""

import json
import sys
import warnings

import numpy as np

from tinyvit import gradcheck, kernels

CASES = {name: (forward, backward, inputs) for name, forward, backward, inputs in gradcheck.operation_cases()}
STACKED = ("split_heads", "add_layernorm")  # whose dy is a tuple; gradcheck's case stacks it


def wrong(array, how):
    """An array of the wrong shape, dtype or kind in place of another one."""
    shape = array.shape
    if how == "huge":  # a view: it takes no memory, and a kernel that walks it leaves what there is
        return np.broadcast_to(array.dtype.type(1), (30_000_000, *shape))
    if how == "empty":
        return np.empty((0, *shape[1:]), array.dtype)
    if how == "longer":
        return np.ones((*shape[:-1], shape[-1] + 1) if shape else (2,), array.dtype)
    if how == "shorter":
        return np.ones((*shape[:-1], shape[-1] - 1) if shape else (0,), array.dtype)
    if how == "broadcast":
        return np.ones((1,) * (len(shape) + 1), array.dtype)
    if how == "ones":
        return np.ones((1,) * max(1, len(shape)), array.dtype)
    if how == "reversed":
        return np.ones((*shape[::-1], 3), array.dtype)[::-1]
    if how == "text":
        return np.full(shape, "x")
    return [[1.0, 2.0], [3.0]]  # no array


def attempt(level, case, how):
    """The error that a wrong `dy` leads to, as (type, message), or None."""
    forward, backward, inputs = CASES[case]
    with kernels.using(level), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        y, cache = forward(*(x.astype("float32") for x in inputs))
        try:
            backward(wrong(np.ones(np.shape(y), "float32"), how), cache)
        except Exception as error:
            return type(error).__name__, str(error)
    return None


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps(attempt(*json.loads(line))), flush=True)
