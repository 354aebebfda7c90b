"""Checks of the arrays that an operation gets, so that no implementation meets one that doesn't fit."""

from functools import cache
from operator import is_

import numpy as np

from tinyvit.arrays import is_of_cupy
from tinyvit.backend import device_of, to_device

LOW_PRECISION = ("bfloat16", "float16")  # dtypes that only kernels compute in


def kind(x):
    """The array library and dtype of `x`, which its kernels are registered for: ("numpy", "float32")."""
    return kind_of(type(x), getattr(x, "dtype", None))


@cache
def kind_of(array_type, dtype):
    return "cupy" if is_of_cupy(array_type) else "numpy", str(dtype)


def as_operand(name, argument, x, first, convert):
    """`x` as an array of the library of the first operand (None if it is that one).

    convert   whether ints and bools become floating-point numbers, and an array of the other library is refused
    """
    dtype = first.dtype if first is not None and first.dtype.kind == "f" else None
    is_number = isinstance(x, (int, float))  # one of Python changes no array's dtype
    is_python = is_number or isinstance(x, (list, tuple, complex))
    if isinstance(x, tuple) and x and hasattr(x[-1], "_fields"):
        raise ValueError(f"{name}: expected {argument} as an array, got it with a cache: y, cache = model(x)")
    x = np.asarray(x, dtype if is_number else None) if is_python else x
    check_array(name, argument, x)
    if first is not None and (library := kind(first)[0]) != kind(x)[0]:
        if convert and not is_python:
            got = f"got one of {kind(x)[0]}"
            raise ValueError(f"{name}: expected {argument} as an array of {library}, like the first argument, {got}")
        x = to_device(x, device_of(first))
    return x.astype(dtype or "float64") if convert and x.dtype.kind in "biu" else x


def as_gradient(name, dy, expected, convert):
    """`dy` as an array, a tuple of arrays or a number, of the shape that is expected; `convert` as in `as_operand`.

    expected   the shape of the result, or a list of shapes for a result of several arrays; dy may be longer than that
    """
    if isinstance(expected, list):
        dy = tuple(dy) if getattr(dy, "shape", ())[:1] == (len(expected),) else dy
        if not isinstance(dy, tuple) or len(dy) < len(expected):
            got = f"{len(dy)} entries" if isinstance(dy, tuple) else type(dy).__name__
            raise ValueError(f"{name}: expected dy as a tuple of {len(expected)} arrays, got {got}")
        checked = tuple(as_gradient(name, *pair, convert) for pair in zip(dy, expected))
        return dy if all(map(is_, checked, dy)) else (*checked, *dy[len(checked) :])
    dy = dy.item() if isinstance(dy, np.generic) else dy
    if isinstance(dy, (int, float, complex)) and expected == ():
        return dy
    check_array(name, "dy", dy)
    if dy.shape != expected:
        raise ValueError(f"{name}: expected dy {expected}, the shape of the result, got {dy.shape}")
    return dy.astype("float64") if convert and dy.dtype.kind in "biu" else dy


def check_array(name, argument, x):
    """Raise ValueError for anything but an array of numbers; a mask would be ignored, a matrix multiplies otherwise."""
    if not hasattr(x, "dtype") or type(x).__name__ in ("MaskedArray", "matrix") or not (
        isinstance(x, np.ndarray) or kind(x)[0] == "cupy"
    ):
        raise ValueError(f"{name}: expected {argument} as an array, got {type(x).__name__}")
    if x.dtype.kind not in "biufc" and str(x.dtype) not in LOW_PRECISION:
        raise ValueError(f"{name}: expected {argument} as an array of numbers, got {x.dtype}")


def check_into(name, into, shapes):
    """Raise ValueError unless `into` has an entry for each parameter, each one an array of its shape, None or False."""
    if len(into) != len(shapes):
        raise ValueError(f"{name}: into= has {len(into)} entries for {len(shapes)} parameter gradients")
    for goal, shape in zip(into, shapes):
        if goal is None or goal is False:
            continue
        if (
            getattr(goal, "shape", None) != shape
            or (goal.dtype.kind not in "fc" and str(goal.dtype) not in LOW_PRECISION)
            or not getattr(goal.flags, "writeable", True)
        ):
            got = f"{goal.dtype} {goal.shape}" if hasattr(goal, "dtype") else type(goal).__name__
            raise ValueError(f"{name}: into=: expected a writeable floating-point array {shape} to add to, got {got}")
