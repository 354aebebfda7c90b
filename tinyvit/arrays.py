"""NumPy or CuPy: the library that an array belongs to, and dtypes.

The mathematics asks an array for its library (`array_module`), and so is written once for both.
"""

import sys
from functools import cache
from typing import Any

import numpy as np

Array = Any  # a numpy.ndarray or a cupy.ndarray

IGNORED = 255  # the label of a pixel that doesn't count
DTYPES = ("float32", "float64", "complex128")


def array_module(x):
    """The library that `x` belongs to: `numpy`, or `cupy` for an array on a GPU."""
    return sys.modules["cupy"] if is_of_cupy(type(x)) else np


@cache
def is_of_cupy(array_type):
    return array_type.__module__.partition(".")[0] == "cupy"


def each_image(function, images):
    """function(images) of an array (B, …); of images of several sizes, an array of objects (B,), one of each image."""
    if images.dtype.kind != "O":
        return function(images)
    return np.fromiter((function(image[None])[0] for image in images), object, len(images))


def as_dtype(dtype):
    """`dtype` as a numpy.dtype, if tinyvit keeps weights in it (float32, float64, complex128); else ValueError."""
    try:
        name = np.dtype(dtype).name
    except TypeError:
        name = str(dtype)
    if name not in DTYPES:
        hint = "; ask for it by precision=, weights stay float32" if name in ("bfloat16", "float16") else ""
        hint = f"; a device goes by name, device={name!r}" if name.startswith(("cpu", "cuda")) else hint
        raise ValueError(f"unknown dtype {name!r}; expected one of {', '.join(DTYPES)}{hint}")
    return np.dtype(name)


def low_precision_dtype(name):
    """The dtype "float16" or "bfloat16"; ml_dtypes, which the GPU extras install, gives NumPy the latter."""
    if str(name) == "bfloat16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(name)


def refuse_backward(loss):
    raise AttributeError(
        "a loss is a number and has no backward: dlogits = F.cross_entropy_backward(1.0, loss_cache), then "
        "model.backward(dlogits, cache)"
    )


class Loss32(np.float32):
    """A float32 that says, where PyTorch's users ask for its `backward`, how gradients are computed here."""

    __slots__ = ()
    backward = property(refuse_backward)


class Loss64(np.float64):
    """A float64 that says the same."""

    __slots__ = ()
    backward = property(refuse_backward)


def as_loss(x):
    """A scalar of NumPy as a `Loss32` or `Loss64`; an array and a complex number as they are."""
    kind = {np.float32: Loss32, np.float64: Loss64}.get(type(x))
    return x if kind is None else kind(x)


def on_gpu(x):
    """Whether an array is one of a GPU."""
    return array_module(x) is not np
