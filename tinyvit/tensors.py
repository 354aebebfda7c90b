"""Arrays by name in safetensors files, as PyTorch lays weights out."""

import numpy as np

from tinyvit.backend import to_numpy

METADATA = {"format": "pt"}  # the one key that PyTorch's loaders ask for


def tensor_bytes(tensors):
    """Arrays by name as the bytes of a safetensors file; equal arrays give equal bytes."""
    from safetensors.numpy import save

    return save(contiguous(tensors), METADATA)


def write_tensors(path, tensors):
    """Write arrays by name into the file `path`, one after the other: the bytes of `tensor_bytes` without a copy of
    all of them in memory. Raises OSError if the disk is full."""
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    path.touch()
    mode = path.stat().st_mode
    try:
        save_file(contiguous(tensors), path, METADATA)
    except SafetensorError as error:  # it has no OSError, not even for a full disk
        raise OSError(str(error)) from error
    path.chmod(mode)  # safetensors makes files that only the owner may read


def contiguous(tensors):
    """NumPy arrays in C order: safetensors corrupts others, and np.ascontiguousarray would make vectors of scalars."""
    return {name: np.asarray(to_numpy(array), order="C") for name, array in tensors.items()}


def load_tensors(path):
    """Arrays by name from a safetensors file; ValueError if it is missing or damaged."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    if not path.is_file():
        raise ValueError(f"{path} is missing")
    try:
        tensors = load_file(path)
        # Where ml_dtypes was imported, bfloat16 would be an array here, and elsewhere not.
        unknown = {str(array.dtype) for array in tensors.values() if array.dtype.kind not in "biufc"}
        if unknown:
            raise TypeError(f"its arrays are {', '.join(sorted(unknown))}")
        return tensors
    except (SafetensorError, AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
        # All but the first: shapes or dtypes that NumPy doesn't have.
        raise ValueError(f"{path} is damaged, of an unknown dtype, or not a safetensors file: {error}") from error
