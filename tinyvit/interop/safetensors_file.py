"""The arrays of a `.safetensors` file, mapped. Format: https://github.com/huggingface/safetensors

A file is the length of its header (8 bytes, little-endian), the header (JSON), and the numbers. safetensors' own reader
copies each array; here only the header is read until an array is used.
"""

import numpy as np

from tinyvit.interop.lazy_arrays import LazyArray, Mapped, size
from tinyvit.interop.strict_json import parse_object
from tinyvit.text import short

LARGEST_HEADER = 1 << 22  # bytes; 10,000 arrays take a quarter of it
DTYPES = {
    "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64", "I32": "int32",
    "I16": "int16", "I8": "int8", "U64": "uint64", "U32": "uint32", "U16": "uint16", "U8": "uint8", "BOOL": "bool",
}  # fmt: skip


def lazy_arrays(path):
    """`LazyArray`s by name. Raises ValueError, naming the file, if it is cut off, damaged or of another format."""
    length = path.stat().st_size
    with path.open("rb") as file:
        header_length = int.from_bytes(file.read(8), "little")
        start = 8 + header_length  # of the numbers
        if length >= start > LARGEST_HEADER:
            raise ValueError(f"{path} has a header of {header_length:,} bytes; expected at most {LARGEST_HEADER:,}")
        if length < 8 or start > length:
            raise ValueError(f"{path} is cut off or not a safetensors file: its header should have {header_length:,} "
                             f"bytes, and the file has {length:,}")  # fmt: skip
        header = parse_object(file.read(header_length), f"the header of {path}")
        header.pop("__metadata__", None)
        places = {name: place(path, name, entry, length - start) for name, entry in header.items()}
    if not places:
        raise ValueError(f"{path} holds no arrays")
    check_order(path, places, length - start)
    mapped = Mapped(path)
    return {name: lazy_array(mapped, dtype, shape, start + first) for name, (dtype, shape, first, _) in places.items()}


def lazy_array(mapped, dtype, shape, first):
    """The `LazyArray` of an array from byte `first` on."""
    number = np.dtype("uint16" if dtype == "bfloat16" else dtype).newbyteorder("<")
    return LazyArray(shape, dtype, lambda: mapped.numbers(number, size(shape), first).reshape(shape))


def place(path, name, entry, total):
    """(dtype, shape, first byte, last byte + 1) of an array from its header entry; ValueError for an invalid one."""
    fits = isinstance(entry, dict) and entry.keys() == {"dtype", "shape", "data_offsets"}
    fits = fits and all(are_counts(entry[key]) for key in ("shape", "data_offsets")) and len(entry["data_offsets"]) == 2
    if not fits:
        raise ValueError(f"{path} is damaged: of {short(name)} its header says {short(entry)}")
    dtype, shape, (first, end) = entry["dtype"], tuple(entry["shape"]), entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise ValueError(f"{path}: {short(name)} is of dtype {short(dtype)}; expected F32, F64, F16 or BF16")
    if not first <= end <= total:
        raise ValueError(f"{path} is cut off or damaged: {short(name)} should lie at bytes {first:,} to {end:,} of "
                         f"{total:,}")  # fmt: skip
    itemsize = 2 if dtype == "BF16" else np.dtype(DTYPES[dtype]).itemsize
    if end - first != itemsize * size(shape) or len(shape) > 32:  # sides: more than NumPy knows in all its versions
        raise ValueError(f"{path} is damaged: {short(name)} is {dtype} {short(shape)}, and has {end - first:,} bytes")
    return DTYPES[dtype], shape, first, end


def are_counts(values):
    return isinstance(values, list) and all(type(value) is int and value >= 0 for value in values)


def check_order(path, places, total):
    """Raise ValueError unless the arrays follow each other without overlaps or gaps, up to the end of the file."""
    at, before = 0, "the header"
    for name, (_, _, first, end) in sorted(places.items(), key=lambda item: item[1][2:]):
        if first != at:
            what = "overlaps with" if first < at else f"begins {first - at:,} bytes after the end of"
            raise ValueError(f"{path} is damaged: {short(name)} {what} {short(before)}")
        at, before = end, name
    if at != total:
        raise ValueError(f"{path} is damaged: its arrays have {at:,} bytes, and after its header there are {total:,}")
