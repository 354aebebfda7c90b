"""CUDA sources: the `.cu` files beside this one, compiled by CuPy when a kernel is first launched.

A file is compiled once for each set of definitions, such as the type of the numbers. All sets are listed
beside the file's name, so that a test can compile every source without a GPU.
"""

from contextlib import contextmanager
from functools import cache
from pathlib import Path

import numpy as np

from tinyvit.arrays import array_module
from tinyvit.backend import AMPERE, capability, device_of

FOLDER = Path(__file__).parent
OPTIONS = ("-std=c++17",)
PACK_BYTES = 16  # the most that a thread of a GPU loads at once
TYPES = {"float32": "float", "bfloat16": "bfloat16", "float16": "float16"}  # what common.cuh calls them
KINDS = [("cupy", dtype) for dtype in TYPES]  # of arrays that the kernels here are for

# The definitions of a kernel that loads one number at a time, and of one that loads packs of 16 bytes where it can.
TYPED = [{"T": T} for T in TYPES.values()]
PACKED = [{"T": T, "PACK": pack} for T in TYPES.values() for pack in (1, 4 if T == "float" else 8)]

SOURCES = []
NULL = np.uintp(0)


class Source:
    """A `.cu` file and the sets of definitions (dicts) that it is compiled for: `Source("elementwise.cu", PACKED)`."""

    def __init__(self, file, variants):
        self.file, self.variants, self.kernels = file, variants, {}
        SOURCES.append(self)

    def text(self, **definitions):
        """The whole source that is compiled; raises ValueError for definitions that aren't listed."""
        if definitions not in self.variants:
            raise ValueError(f"{self.file}: expected one of {self.variants}, got {definitions}")
        lines = [f"#define {name} {value}" for name, value in definitions.items()]
        return "\n".join([read("nvidia.cuh"), read("common.cuh"), *lines, read(self.file)])

    def launch(self, name, grid, block, *arguments, **definitions):
        """Start `grid` blocks (an int, or up to three) of `block` threads of the kernel `name`; nothing waits for it.

        The first argument must be an array. Arrays are passed by address, None as a null pointer, an int as
        `long long` and a Python float as `float`, np.uint64 as `unsigned long long`. Arrays must be contiguous where
        the kernel expects it.
        """
        grid = (grid,) if isinstance(grid, int) else grid
        if 0 in grid:
            return
        cupy = array_module(arguments[0])
        key = cupy, name, *definitions.values()  # of one file, in which each value belongs to one name
        kernel = self.kernels.get(key)
        if kernel is None:
            module = cupy.RawModule(code=self.text(**definitions), options=OPTIONS)
            kernel = self.kernels[key] = module.get_function(name)
        # CuPy takes the rest as it is. A step passes two thousand arguments, hence no function for each.
        passed = [NULL if x is None else np.float32(x) if type(x) is float else x for x in arguments]
        run(name, arguments, kernel, grid, (block,), tuple(passed))


class Watch:
    """The function that `watching` puts around every launch of this process, or None."""

    around = None


@contextmanager
def watching(around):
    """Inside this, every kernel and every product of cuBLAS is launched within `around(name, arrays)`, to time it."""
    Watch.around = around
    try:
        yield
    finally:
        Watch.around = None


def run(name, arguments, function, *launch):
    """function(*launch), which works on these arguments, some of them arrays."""
    if Watch.around is None:
        return function(*launch)
    with Watch.around(name, [argument for argument in arguments if hasattr(argument, "nbytes")]):
        return function(*launch)


@cache
def read(name):
    """A file in ASCII, since CuPy writes it down in whatever encoding the system has; only comments lose by it."""
    return (FOLDER / name).read_text(encoding="utf-8").encode("ascii", "xmlcharrefreplace").decode()


def type_of(x):
    """The name in common.cuh of an array's number type."""
    return type_called(x.dtype)


@cache
def type_called(dtype):
    return TYPES[str(dtype)]


def pack_of(width, *arrays):
    """How many numbers a thread may load at once from contiguous rows of `width` numbers: 16 bytes' worth, or 1.

    The first array gives the type; the rows of all arrays must start on pack boundaries.
    """
    pack = PACK_BYTES // arrays[0].itemsize
    if width % pack:
        return 1
    for array in arrays:
        if array.data.ptr % min(PACK_BYTES, pack * array.itemsize):
            return 1
    return pack


def has_tensor_cores(x):
    """Whether the GPU of an array multiplies fragments as nvidia.cuh says: from compute capability 8.0 on."""
    return capability_of(device_of(x)) >= AMPERE


@cache
def capability_of(device):
    return capability(device)


def blocks(count, each):
    """How many blocks (or packs) of `each` cover `count`."""
    return -(-count // each)


def contiguous(x):
    """`x` itself if its entries lie in memory in the order of its axes, else a copy."""
    return x if x.flags.c_contiguous else array_module(x).ascontiguousarray(x)  # which gives everything a dimension


def run_reference(operation, *inputs):
    """The reference implementation's result, for inputs that no kernel supports; ValueError in low precision.

    There the reference implementation would round after every operation.
    """
    arrays = [array for x in inputs for array in (x if isinstance(x, tuple) else (x,)) if hasattr(array, "dtype")]
    dtypes = list(dict.fromkeys(str(array.dtype) for array in arrays))
    if any(dtype in ("bfloat16", "float16") for dtype in dtypes):
        name = operation.reference.__name__
        raise ValueError(f"{name}: no kernel for {', '.join(dtypes)} together in these shapes; compute in float32")
    return operation.reference(*inputs)


def empty_like(x, dtype=None):
    """A new contiguous array of the shape of `x`."""
    return array_module(x).empty(x.shape, dtype or x.dtype)
