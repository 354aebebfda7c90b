"""Messages over a pipe: JSON, and the bytes of arrays after it. Nothing that is received is ever run, as a pickle is.

A message is 8 bytes, the length of the JSON; the JSON; then each array's bytes in the order of their places in it.
Imports nothing of the package: the process that runs a solution loads it, too.
"""

import json
import math
import re
import struct

import numpy as np

LARGEST = 64 << 20  # bytes of a message
TOO_LARGE = "what it returned takes {} MB; at most 64 are read"
DEEPEST = 8  # lists in lists
KINDS = "biufc"  # dtypes' kinds that are exchanged
DTYPE = re.compile(f"[<>|][{KINDS}][0-9]{{1,2}}")


class Unreadable(Exception):
    """What came over the pipe is no message."""


def pack(message):
    """The bytes of a message of numbers, texts, None, arrays, and tuples, lists and dicts of these."""
    buffers = []
    head = json.dumps(packed(message, buffers, DEEPEST)).encode()
    size = len(head) + sum(map(len, buffers))
    if size > LARGEST:
        raise Unreadable(TOO_LARGE.format(size >> 20))
    return b"".join([struct.pack("<Q", len(head)), head, *buffers])


def packed(value, buffers, depth):
    if depth == 0:
        raise Unreadable(f"what it returned is nested more than {DEEPEST} deep")
    if value is None or type(value) in (bool, str):
        return value
    if isinstance(value, np.ma.MaskedArray):
        return {"other": "masked array"}
    if isinstance(value, np.ndarray) and value.dtype.kind in KINDS and value.dtype.itemsize <= 16:
        if value.nbytes > LARGEST:
            raise Unreadable(TOO_LARGE.format(value.nbytes >> 20))
        array = np.array(value, order="C", subok=False)
        buffers.append(array.tobytes())
        return {"array": [array.dtype.newbyteorder("=").str, list(array.shape)]}
    if isinstance(value, np.generic) and value.dtype.kind in KINDS:
        return {"number": packed(np.asarray(value), buffers, depth)}
    if type(value) is int and value.bit_length() < 1000:
        return {"int": str(value)}
    if type(value) is float:
        return {"float": value.hex()}
    if type(value) is complex:
        return {"complex": [value.real.hex(), value.imag.hex()]}
    if isinstance(value, (tuple, list)):
        kind = "tuple" if isinstance(value, tuple) else "list"
        return {kind: [packed(one, buffers, depth - 1) for one in value]}
    if isinstance(value, dict):
        return {"dict": [[str(key), packed(one, buffers, depth - 1)] for key, one in value.items()]}
    return {"other": type(value).__name__}


def unpack(head, read):
    """The message; `read(n)` gives the next n bytes. Raises Unreadable unless it is one."""
    try:
        return unpacked(json.loads(head), read, DEEPEST)
    except Unreadable:
        raise
    except (ValueError, TypeError, KeyError, RecursionError, OverflowError) as error:
        raise Unreadable("what came back can't be read") from error


def unpacked(value, read, depth):
    if value is None or isinstance(value, (bool, str)):
        return value
    if depth == 0 or not isinstance(value, dict) or len(value) != 1:
        raise Unreadable("what came back can't be read")
    ((kind, content),) = value.items()
    if kind in ("array", "number"):
        dtype, shape = content if kind == "array" else content["array"]
        if not DTYPE.fullmatch(str(dtype)) or any(type(side) is not int or side < 0 for side in shape):
            raise Unreadable("what came back can't be read")
        size = math.prod(shape) * np.dtype(dtype).itemsize
        if size > LARGEST or len(shape) > 16:
            raise Unreadable("what came back can't be read")
        array = np.frombuffer(bytearray(read(size)), dtype).reshape(shape)
        return array if kind == "array" else array[()]
    if kind == "int":
        return int(str(content)[:400])
    if kind == "float":
        return float.fromhex(content)
    if kind == "complex":
        return complex(*map(float.fromhex, content))
    if kind in ("tuple", "list", "dict") and not isinstance(content, list):
        raise Unreadable("what came back can't be read")
    if kind in ("tuple", "list"):
        return (tuple if kind == "tuple" else list)(unpacked(one, read, depth - 1) for one in content)
    if kind == "dict":
        return {str(key): unpacked(one, read, depth - 1) for key, one in content}
    if kind == "other":
        name = "".join(letter for letter in str(content)[:40] if letter.isalnum() or letter in " _") or "thing"
        return np.ma.array(0.0, mask=True) if name == "masked array" else type(name, (), {})()
    raise Unreadable("what came back can't be read")
