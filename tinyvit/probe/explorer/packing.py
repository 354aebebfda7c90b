"""Arrays as short text that a page can read: fewer bits where only colours are shown, deflated, in base64."""

import base64
import zlib

import numpy as np

SHARE_STEPS = 4095  # codes of a share: 0.0244 % apart, for numbers that are shown in tenths of a percent
SIGNED_STEPS = 127   # codes on either side of zero


def share_codes(shares):
    """uint16 codes of numbers from 0 to 1: shares ≈ codes / 4095, at most 0.5/4095 off."""
    return np.round(np.asarray(shares, "float64") * SHARE_STEPS).astype("<u2")


def signed_codes(x, axes):
    """(int8 codes, float32 largest): x ≈ codes · largest / 127, at most largest/254 off.

    `largest` is that of |x| over the last `axes` axes.
    """
    x = np.asarray(x, "float64")
    over = tuple(range(-axes, 0))
    largest = np.abs(x).max(over, keepdims=True)
    codes = np.round(x / np.where(largest > 0, largest, 1) * SIGNED_STEPS).astype("int8")
    return codes, largest.squeeze(over).astype("<f4")


def layout(arrays):
    """[name, dtype, shape] of each array, in the order in which `pack` puts them."""
    return [[name, array.dtype.name, list(array.shape)] for name, array in arrays.items()]


def pack(arrays):
    """All arrays as one text: the bytes of each, one array after the other, deflated, in base64.

    If numbers have several bytes, the first bytes of all numbers come first, then the second ones: similar bytes are
    then adjacent, and deflate to three quarters of the length.
    """
    planes = (
        np.frombuffer(array.astype(array.dtype.newbyteorder("<")).tobytes(), "uint8").reshape(-1, array.itemsize).T
        for array in arrays.values()
    )
    return base64.b64encode(zlib.compress(b"".join(plane.tobytes() for plane in planes), 9)).decode("ascii")
