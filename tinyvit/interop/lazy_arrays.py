"""Arrays in files, with names, shapes and dtypes known before any data is read."""

import mmap
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from tinyvit.backend import Array
from tinyvit.data.folder import expect_memory
from tinyvit.text import short

HALF = ("bfloat16", "float16")
FLOATS = (*HALF, "float32", "float64")
SHOWN = 5  # names in a message


class LazyArray(NamedTuple):
    """An array in a file.

    read   returns its numbers: a read-only view of the mapped file unless they are compressed; bfloat16, which NumPy
           doesn't have, as uint16
    """

    shape: tuple[int, ...]
    dtype: str
    read: Callable[[], Array]


class Mapped:
    """A file that is mapped into memory at the first read."""

    def __init__(self, path):
        self.path, self.content = path, None

    def numbers(self, dtype, count, first):
        """`count` numbers from byte `first` on, read-only; they keep the map alive."""
        if self.content is None:
            with self.path.open("rb") as file:
                self.content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        return np.frombuffer(self.content, dtype, count, first)


def read_floats(stored, source):
    """Arrays by name from `LazyArray` ones: bfloat16 and float16 as float32, exactly, float32 and float64
    unchanged, mapped where they can be.

    Raises ValueError, naming `source`, for other dtypes, and if what must be converted doesn't fit into memory.
    """
    other = [f"{name} ({entry.dtype})" for name, entry in stored.items() if entry.dtype not in FLOATS]
    if other:
        raise ValueError(f"{source} has numbers of other kinds than {', '.join(FLOATS)}: {listed(other)}")
    halves = (entry for entry in stored.values() if entry.dtype in HALF)
    expect_memory(sum(4 * size(entry.shape) for entry in halves), f"{source} as float32 needs")
    return {name: as_float(entry.read(), entry.dtype) for name, entry in stored.items()}


def of_shapes(arrays, source):
    """Arrays of the shapes of `LazyArray`s, without data: no file is read, no memory allocated.

    Raises ValueError, naming `source`, for a shape that no array can have.
    """
    try:
        return {name: np.broadcast_to(np.int8(0), entry.shape) for name, entry in arrays.items()}
    except ValueError as error:
        raise ValueError(f"{source} is damaged: one of its arrays has a shape that can't be ({error})") from error


def expect_finite(used, read, source):
    """Raise ValueError, naming `source`, if an array that is used has NaN or infinite numbers.

    read   the arrays under the source's own names, for the message
    """
    if all(is_finite(array) for array in used.values()):
        return
    damaged = [f"{name} ({array.size - np.isfinite(array).sum():,})" for name, array in read.items()
               if not is_finite(array)]  # fmt: skip
    raise ValueError(f"{source} has numbers that are NaN or infinite: {listed(damaged)}; "
                     "the file is damaged, or its training diverged")  # fmt: skip


def is_finite(array):
    """Whether all entries are finite; min and max propagate NaN, and allocate nothing as isfinite would."""
    return not array.size or bool(np.isfinite(array.min()) and np.isfinite(array.max()))


def as_float(array, dtype):
    """Numbers of one of `FLOATS` as float32 or float64, in this machine's byte order."""
    if dtype == "bfloat16":  # the upper half of a float32
        return (array.astype("uint32") << 16).view("float32")
    return array.astype("float64" if dtype == "float64" else "float32", copy=False)


def size(shape):
    """The number of entries of an array of this shape, as an int of any size."""
    count = 1
    for side in shape:
        count *= side
    return count


def listed(names, most=SHOWN):
    """The first few names, printable, and the number of others."""
    names = list(names)
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return f"{', '.join(short(name, 80) for name in names[:most])}{more}"
