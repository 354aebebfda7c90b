"""Arrays by name in safetensors files, as PyTorch lays weights out: https://github.com/huggingface/safetensors.

NumPy has no bfloat16; here it is `BFLOAT16`, as in an .npz that big_vision saved.
"""

import json
import mmap
from math import prod

import numpy as np

from tinyvit.backend import to_numpy
from tinyvit.text import shorten

METADATA = {"format": "pt"}  # the one key that PyTorch's loaders ask for
BFLOAT16 = np.dtype("V2")  # two bytes of no meaning
DTYPES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "V2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1",
    "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "u1", "BOOL": "?",
}  # fmt: skip


def tensor_bytes(tensors):
    """Arrays by name as the bytes of a safetensors file; equal arrays give equal bytes."""
    from safetensors.numpy import save

    return save(as_contiguous(tensors), METADATA)


def write_tensors(path, tensors):
    """Write arrays by name into the file `path`, one after the other: the bytes of `tensor_bytes` without a copy of
    all of them in memory. Raises OSError if the disk is full."""
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    path.touch()
    mode = path.stat().st_mode
    try:
        save_file(as_contiguous(tensors), path, METADATA)
    except SafetensorError as error:  # it has no OSError, not even for a full disk
        raise OSError(str(error)) from error
    path.chmod(mode)  # safetensors makes files that only the owner may read


def as_contiguous(tensors):
    """NumPy arrays in C order: safetensors corrupts others, and np.ascontiguousarray would make vectors of scalars."""
    return {name: np.asarray(to_numpy(array), order="C") for name, array in tensors.items()}


def load_tensors(path):
    """Arrays by name from a safetensors file; ValueError if it is missing, damaged, or holds bfloat16."""
    if not path.is_file():
        raise ValueError(f"{path} is missing")
    arrays = map_tensors(path)
    if any(array.dtype == BFLOAT16 for array in arrays.values()):
        raise ValueError(f"{path} is of bfloat16; expected float32 or float64")
    return {name: np.array(array) for name, array in arrays.items()}


def map_tensors(path):
    """Arrays by name: read-only views of the mapped file, of which nothing is read until they are used.

    Raises ValueError, naming the file, if it is cut off or damaged, and for dtypes that NumPy doesn't have.
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
        raise ValueError(f"{path} is cut off, damaged or not a safetensors file: {shorten(error)}") from error
    return arrays
