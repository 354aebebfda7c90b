"""Random numbers that a dtype represents exactly, and comparisons with the reference implementation in float64."""

import ml_dtypes
import numpy as np

DTYPE = {"float32": np.dtype("float32"), "bfloat16": np.dtype(ml_dtypes.bfloat16), "float16": np.dtype("float16")}
EPSILON = {"float32": 2.0**-23, "bfloat16": 2.0**-8, "float16": 2.0**-11}  # the rounding error is at most half of it
BOUND = {"float32": 1e-5, "float16": 4e-3, "bfloat16": 1.6e-2}  # DESIGN.md's, of the largest number
LOW = ("bfloat16", "float16")


def numbers(*shape, dtype="float32", seed=0, scale=1.0):
    """Random numbers as float64, each of which an array of `dtype` can hold exactly."""
    x = np.random.default_rng(seed).normal(size=shape) * scale
    return x.astype(DTYPE[dtype]).astype("float64")


def to(cupy, x, dtype="float32"):
    """Copy a NumPy array to the device."""
    return cupy.asarray(x.astype(DTYPE[dtype]))


def turned(x):
    """The same array with its axes the other way round in memory."""
    return x.T.copy().T


def as_tuple(x):
    return x if isinstance(x, tuple) else (x,)


def assert_close(got, expected, dtype, largest=1.0, bound=None):
    """Compare within the bound of the dtype, of the largest number or, where that is less, of `largest`."""
    expected = np.asarray(expected)
    assert got.shape == expected.shape
    most = max(largest, abs(expected).max(initial=0))
    bound = BOUND[dtype] if bound is None else bound
    np.testing.assert_allclose(got.get().astype("float64"), expected, rtol=0, atol=bound * most)


def as_right_as_the_reference(cupy, operation, arrays, low, dtype, *options, lie=lambda x: x, **named):
    """Compare results, gradients, and gradients added to what is there, with the reference implementation in float64.

    The first `low` arrays are in `dtype`, the others, which are parameters, in float32. Returns the result, the
    cache and the gradients.
    """
    there = [lie(to(cupy, x, dtype if i < low else "float32")) for i, x in enumerate(arrays)]
    y, cache = operation(*there, *options, **named)
    expected, c = operation.reference(*arrays, *options, **named)
    dy = tuple(numbers(*want.shape, dtype=dtype, seed=7 + i) for i, want in enumerate(as_tuple(expected)))
    our_dy = tuple(lie(to(cupy, part, dtype)) for part in dy)
    dy, our_dy = (dy, our_dy) if isinstance(expected, tuple) else (dy[0], our_dy[0])
    got, wanted = (as_tuple(run(*of)) for run, of in ((operation.backward, (our_dy, cache)),
                                                      (operation.backward.reference, (dy, c))))  # fmt: skip
    parameters = len(operation.backward.parameters(cache)) if operation.backward.parameters else 0
    inputs = len(got) - parameters
    assert {x.dtype for x in (*as_tuple(y), *got[:inputs])} == {DTYPE[dtype]}
    assert {x.dtype for x in got[inputs:]} <= {DTYPE["float32"]}
    for one, other in zip((*as_tuple(y), *got), (*as_tuple(expected), *wanted), strict=True):
        assert_close(one, other, dtype)
    kinds = (
        lambda shape: cupy.ones(shape, "float32"), lambda shape: cupy.ones(shape, "float64"),
        lambda shape: cupy.ones((*shape, 2), "float32")[..., 0], lambda shape: False,
    )  # fmt: skip
    for make in kinds if parameters else ():
        goals = [make(x.shape) for x in got[inputs:]]
        again = operation.backward(our_dy, cache, goals)
        for one, other in zip(again[:inputs], got[:inputs], strict=True):
            np.testing.assert_array_equal(one.get(), other.get())
        for one, goal, other in zip(again[inputs:], goals, got[inputs:], strict=True):
            assert one is (None if goal is False else goal)
            if goal is not False:
                assert_close(one, 1 + other.get().astype("float64"), "float32")
    return y, cache, got


def sizes_of_sums(q, k, v, dy, probs, scale=None):
    """Of attention, the largest sum of absolute terms in y, dq, dk and dv: rounding errors are relative to it."""
    q, k, v, dy = map(abs, (q, k, v, dy))
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    dprobs = dy @ v.mT
    dscores = probs * (dprobs + (probs * dprobs).sum(-1, keepdims=True)) * scale
    sums = probs @ v, dscores @ k, dscores.mT @ q, probs.mT @ dy
    return [max(1, x.max(initial=0)) for x in sums]
