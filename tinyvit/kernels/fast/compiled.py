"""How kernels are compiled: ahead, for read-only arrays, without the interpreter's lock, into a cache on disk.

Of what is called fast-math only that is allowed which leaves NaN and infinity as they are: a product and a sum in one
instruction everywhere, and, in a loop that adds up, another order of the terms.
"""

import hashlib
import tempfile
import warnings
from functools import cache, partial, wraps
from pathlib import Path
from typing import NamedTuple

import numba
import numpy as np
from numba import types
from numba.core.compiler_lock import global_compiler_lock
from numba.extending import intrinsic

FLOAT, INDEX = types.float32, types.int64


class Sized(NamedTuple):
    """The type of an array argument, and the names or lengths of its axes."""

    type: types.Array
    axes: tuple


def array(axes, dtype=FLOAT, layout="C", readonly=False):
    """An array with named axes, "rows D"; arguments that share a name must have the same length there."""
    axes = tuple(axes.split())
    return Sized(types.Array(dtype, len(axes), layout, readonly=readonly), axes)


INPUT = partial(array, readonly=True)  # takes arrays that may be written to as well
OUTPUT = array
TOTAL = partial(array, dtype=types.float64)

IN_ORDER = {"contract"}
ANY_ORDER = {"contract", "reassoc", "nsz"}


def jit(*signature, math=IN_ORDER):
    """Compile a function that returns nothing for arguments of these types at its first call, if no cache has it.

    Compiled code checks no index, so every call checks first that the lengths of the arrays agree: the axes of INPUT,
    OUTPUT and TOTAL are names or lengths. Raises ValueError where they don't, TypeError for other dtypes or layouts.
    """
    return lambda function: wraps(function)(with_check(signature, dispatcher(function, math), function.__name__))


def with_check(signature, kernel, name):
    """The kernel behind a check of its arrays' shapes that is written out for this signature, as it runs in each call.

    For INPUT("rows D"), INPUT("D") it is `rows, D = a0.shape` and `a1.shape == (D,)`.
    """
    axes = {f"a{i}": kind.axes for i, kind in enumerate(signature) if isinstance(kind, Sized)}
    arguments, known, lines, conditions = ", ".join(f"a{i}" for i in range(len(signature))), set(), [], []
    for array, names in axes.items():
        length = {axis: axis if axis.isdigit() else f"{axis}_" for axis in names}
        expected = f"({''.join(f'{length[axis]}, ' for axis in names)})"
        new = {axis for axis in names if not axis.isdigit()} - known
        if new:
            targets = [length[axis] if axis in new else "_" for axis in names]
            lines.append(f"{', '.join(targets)}, = {array}.shape")
        if len(new) < len(names):
            conditions.append(f"{array}.shape == {expected}")
        known |= new

    def refuse(*shapes):
        expected, got = ", ".join(f"({' '.join(names)})" for names in axes.values()), ", ".join(map(str, shapes))
        raise ValueError(f"{name}: expected arrays {expected}, got {got}")

    source = f"""
def checked({arguments}):
    try:
        {"; ".join(lines)}
        fit = {" and ".join(conditions) or True}
    except ValueError:  # another number of axes
        fit = False
    if not fit:
        refuse({", ".join(f"{array}.shape" for array in axes)})
    kernel({arguments})
"""

    def first(*arguments):
        with global_compiler_lock:  # of several threads, one compiles
            if scope["kernel"] is first:
                kernel.compile(types.void(*(kind.type if isinstance(kind, Sized) else kind for kind in signature)))
                kernel.disable_compile()
                scope["kernel"] = kernel
        kernel(*arguments)

    scope = {"kernel": first, "refuse": refuse}
    exec(source, scope)
    return scope["checked"]


def dispatcher(function, math):
    folder, before = cache_folder(), numba.config.CACHE_DIR
    numba.config.CACHE_DIR = str(folder or "")
    try:
        return numba.njit(nogil=True, fastmath=math, error_model="numpy", cache=folder is not None)(function)
    finally:
        numba.config.CACHE_DIR = before


@cache
def cache_folder():
    """The folder of the compiled functions: NUMBA_CACHE_DIR, or the platform's folder for caches; None for nowhere.

    In a folder of their own for each version of the sources: numba itself looks at the file of a function alone, not
    at those of the functions that it calls.
    """
    package = Path(__file__).parents[2]
    digest = hashlib.sha256()
    for source in sorted([*package.glob("kernels/**/*.py"), *package.glob("functional/*.py")]):
        digest.update(source.read_bytes())
    root = numba.config.CACHE_DIR
    if not root:
        try:
            import pooch
        except ImportError:  # NumPy and numba are all that kernels need
            return None
        root = Path(pooch.os_cache("tinyvit"), "kernels")
    folder = Path(root, digest.hexdigest()[:16])
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()  # which fails where nothing can be written
    except OSError as error:
        warnings.warn(
            f"compiled kernels can't be kept in {folder} ({error.strerror}) and are compiled anew in every process; "
            "set NUMBA_CACHE_DIR to a folder that can be written to",
            stacklevel=2,
        )
        return None
    return folder


def inline(math=IN_ORDER):
    """Make a function part of whatever compiled function calls it, where its arithmetic stays as it is here."""
    return numba.njit(forceinline=True, fastmath=math, error_model="numpy")


def as_contiguous(x):
    """x itself if it is C-contiguous and aligned, as compiled functions need it, else a copy."""
    return np.require(x, requirements=["C_CONTIGUOUS", "ALIGNED"])


@intrinsic
def as_float(context, bits):
    """The float32 that has these 32 bits."""

    def code(context, builder, signature, arguments):
        return builder.bitcast(arguments[0], context.get_value_type(types.float32))

    return types.float32(types.int32), code


@intrinsic
def as_bits(context, number):
    """The 32 bits of a float32, as an int32."""

    def code(context, builder, signature, arguments):
        return builder.bitcast(arguments[0], context.get_value_type(types.int32))

    return types.int32(types.float32), code
