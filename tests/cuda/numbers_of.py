"""Random numbers that a dtype represents exactly, and what rounding errors are relative to."""

import ml_dtypes
import numpy as np

DTYPE = {"float32": np.dtype("float32"), "bfloat16": np.dtype(ml_dtypes.bfloat16), "float16": np.dtype("float16")}
EPSILON = {"float32": 2.0**-23, "bfloat16": 2.0**-8, "float16": 2.0**-11}  # the rounding error is at most half of it


def numbers(*shape, dtype="float32", seed=0, scale=1.0):
    """Random numbers as float64, each of which an array of `dtype` can hold exactly."""
    x = np.random.default_rng(seed).normal(size=shape) * scale
    return x.astype(DTYPE[dtype]).astype("float64")


def to(cupy, x, dtype="float32"):
    """Copy a NumPy array to the device."""
    return cupy.asarray(x.astype(DTYPE[dtype]))


def sizes_of_sums(q, k, v, dy, probs, scale=None):
    """Of attention, the largest sum of absolute terms in y, dq, dk and dv: rounding errors are relative to it."""
    q, k, v, dy = map(abs, (q, k, v, dy))
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    dprobs = dy @ v.mT
    dscores = probs * (dprobs + (probs * dprobs).sum(-1, keepdims=True)) * scale
    sums = probs @ v, dscores @ k, dscores.mT @ q, probs.mT @ dy
    return [max(1, x.max(initial=0)) for x in sums]
