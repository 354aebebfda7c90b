"""How kernels are compiled: ahead, for read-only arrays, without the interpreter's lock, into a cache on disk.

Of what is called fast-math only that is allowed which leaves NaN and infinity as they are: a product and a sum in one
instruction everywhere, and, in a loop that adds up, another order of the terms.
"""

import hashlib
import os
import warnings
from functools import cache
from pathlib import Path

import numba
import numpy as np
from numba import types
from numba.extending import intrinsic

FLOAT = types.float32
INPUT = types.Array(FLOAT, 1, "C", readonly=True)      # takes arrays that may be written to as well
INPUT_2D = types.Array(FLOAT, 2, "C", readonly=True)
OUTPUT = types.Array(FLOAT, 1, "C")
OUTPUT_2D = types.Array(FLOAT, 2, "C")
TOTAL = types.Array(types.float64, 1, "C")

IN_ORDER = {"contract"}
ANY_ORDER = {"contract", "reassoc", "nsz"}


def compiled(*signature, math=IN_ORDER):
    """Compile a function that returns nothing for arguments of these types, now or, better, from the cache."""

    def decorate(function):
        folder, before = cache_folder(), numba.config.CACHE_DIR
        numba.config.CACHE_DIR = str(folder or "")
        try:
            options = {"nogil": True, "fastmath": math, "error_model": "numpy", "cache": folder is not None}
            return numba.njit(types.void(*signature), **options)(function)
        finally:
            numba.config.CACHE_DIR = before

    return decorate


@cache
def cache_folder():
    """Where compiled functions are kept: in NUMBA_CACHE_DIR, or the platform's folder for caches; None for nowhere.

    In a folder of their own for each version of the sources: numba itself looks at the file of a function alone, not
    at those of the functions that it calls.
    """
    import pooch

    package = Path(__file__).parents[2]
    digest = hashlib.sha256()
    for source in sorted([*package.glob("kernels/**/*.py"), *package.glob("functional/*.py")]):
        digest.update(source.read_bytes())
    root = Path(numba.config.CACHE_DIR or Path(pooch.os_cache("tinyvit"), "kernels"))
    folder = root / digest.hexdigest()[:16]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK):
            raise PermissionError(13, "Permission denied")
    except OSError as error:
        warnings.warn(
            f"compiled kernels can't be kept in {folder} ({error.strerror}) and are compiled anew in every process; "
            "set NUMBA_CACHE_DIR to a folder that can be written to",
            stacklevel=2,
        )
        return None
    return folder


def inlined(math=IN_ORDER):
    """Make a function part of whatever compiled function calls it, where its arithmetic stays as it is here."""
    return numba.njit(forceinline=True, fastmath=math, error_model="numpy")


def in_order(x):
    """x with its numbers one after the other and at whole multiples of their size, as compiled functions want it."""
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
