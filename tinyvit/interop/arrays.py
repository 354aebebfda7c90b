"""Arrays by name in `.safetensors` and `.npz` files, which the libraries of these formats check.

NumPy has no bfloat16; here it is `BFLOAT16`, as in an .npz that big_vision saved.
"""

import json
import mmap
import zipfile
from math import prod

import numpy as np

from tinyvit.data.folder import expect_memory
from tinyvit.text import short

BFLOAT16 = np.dtype("V2")  # two bytes of no meaning
DTYPES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "V2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1",
    "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "u1", "BOOL": "?",
}  # fmt: skip
SHOWN = 5  # names in a message


def read_safetensors(path):
    """Arrays by name: read-only views of the mapped file, of which nothing is read until they are used.

    Raises ValueError, naming the file, if it is cut off or damaged, and for dtypes that NumPy doesn't have. Format:
    https://github.com/huggingface/safetensors
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "numpy"):  # checks the header; its arrays would be copies, and none of them bfloat16
            pass
        with path.open("rb") as file:
            content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        start, arrays = 8 + int.from_bytes(content[:8], "little"), {}
        for name, entry in json.loads(content[8:start]).items():
            if name != "__metadata__":
                first, shape = start + entry["data_offsets"][0], entry["shape"]
                arrays[name] = np.frombuffer(content, DTYPES[entry["dtype"]], prod(shape), first).reshape(shape)
    except KeyError as error:
        raise ValueError(f"{path} has arrays of the dtype {error}; expected F32, F64, F16 or BF16") from error
    except (SafetensorError, ValueError, OverflowError, MemoryError) as error:  # also for shapes beyond NumPy's
        raise ValueError(f"{path} is cut off, damaged or not a safetensors file: {short(error)}") from error
    return arrays


def read_npz(path):
    """Arrays by name of a zip of `.npy` files.

    Raises ValueError, naming the file, if it is cut off or damaged, holds Python objects, or unpacks to more than this
    machine's memory.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            expect_memory(sum(member.file_size for member in archive.infolist()), "it unpacks to")
            return {member.filename.removesuffix(".npy"): read_npy(archive, member) for member in archive.infolist()}
    except OSError:
        raise
    except Exception as error:  # zlib, struct, the dtype's parser and others raise errors of every kind
        what = short(error or type(error).__name__, 250)
        raise ValueError(f"{path} is cut off, damaged or not an .npz of arrays: {what}") from error


def read_npy(archive, member):
    """The array of a zip's member; ValueError if its header says more bytes than there are."""
    with archive.open(member) as file:
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = read(file)
        if file.tell() + prod(shape) * dtype.itemsize > member.file_size:
            raise ValueError(f"{member.filename} is {dtype} {shape}, and has {member.file_size:,} bytes")
        file.seek(0)
        return np.lib.format.read_array(file)


def as_float(array):
    """Floating-point numbers as float64 or float32, bfloat16 and float16 exactly, in this machine's byte order."""
    if array.dtype == BFLOAT16:  # the upper half of a float32
        return (array.view("<u2").astype("uint32") << 16).view("float32")
    return array.astype("float64" if array.dtype.itemsize == 8 else "float32", copy=False)


def expect_finite(arrays, source):
    """Raise ValueError, naming `source`, for arrays with NaN or infinite numbers."""
    # min and max propagate NaN, and allocate nothing as isfinite would.
    wrong = [name for name, x in arrays.items() if x.size and not np.isfinite([x.min(), x.max()]).all()]
    if wrong:
        raise ValueError(f"{source} has numbers that are NaN or infinite in {listed(wrong)}")


def listed(names, most=SHOWN):
    """The first few names, printable, and the number of others."""
    names = list(names)
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return f"{', '.join(short(name) for name in names[:most])}{more}"
