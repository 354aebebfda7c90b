"""A stand-in for CuPy, made of NumPy: refuses what waits for a GPU, and arrays that were left on the host.

It can't tell whether a GPU computes the same, only that the code asks nothing of it that CuPy doesn't do without
waiting: no number is read back, no mask chooses elements, and no host array meets one of the device.
"""

from types import SimpleNamespace

import numpy as np

# What CuPy has of the functions that are not ufuncs, and does without waiting (bincount, nonzero, unique do wait).
FUNCTIONS = {"clip", "where", "take_along_axis", "arange", "stack", "concatenate", "moveaxis"}


class ndarray(np.ndarray):
    """An array on the pretended device."""

    def __array_ufunc__(self, ufunc, method, *inputs, out=None, **options):
        keywords = options if out is None else options | {"out": tuple(map(on_host, out))}
        return on_device(getattr(ufunc, method)(*map(on_host, inputs), **keywords))

    def __array_function__(self, function, types, args, kwargs):
        assert function.__name__ in FUNCTIONS, f"CuPy lacks {function.__name__}, or waits in it"
        return on_device(function(*map(on_host, args), **kwargs))

    def __getitem__(self, key):
        return on_device(self.view(np.ndarray)[index(key)])

    def __setitem__(self, key, value):
        self.view(np.ndarray)[index(key)] = on_host(value)

    def waits(self, *args):
        raise AssertionError("this waits for the GPU")

    __bool__ = __int__ = __float__ = __index__ = item = tolist = waits


ndarray.__module__ = "cupy"


def on_device(x):
    """NumPy gives a scalar where CuPy keeps an array of no dimensions."""
    return np.asarray(x).view(ndarray) if isinstance(x, (np.ndarray, np.generic)) else x


def on_host(x):
    """The plain array of a device array, or a scalar."""
    assert isinstance(x, ndarray) or not isinstance(x, np.ndarray), "a host array among the device's"
    return x.view(np.ndarray) if isinstance(x, ndarray) else x


def index(key):
    parts = tuple(map(on_host, key)) if isinstance(key, tuple) else on_host(key)
    for part in parts if isinstance(parts, tuple) else (parts,):
        assert not isinstance(part, np.ndarray) or part.dtype.kind in "iu", "a mask as an index waits for its size"
    return parts


def wrapped(function):
    return lambda *args, **kwargs: on_device(function(*map(on_host, args), **kwargs))


def from_host(x, dtype=None):
    return np.array(x, dtype).view(ndarray)


cupy = SimpleNamespace(
    array=from_host, asarray=from_host, zeros=wrapped(np.zeros), arange=wrapped(np.arange), where=wrapped(np.where),
    clip=wrapped(np.clip), take_along_axis=wrapped(np.take_along_axis), floor=np.floor, maximum=np.maximum,
    left_shift=np.left_shift, add=np.add, int32=np.int32, ndarray=ndarray,
)  # fmt: skip
