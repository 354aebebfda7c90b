"""The number formats that a model can compute in.

              parameters, gradients,     activations, and matrices    products
              sums and statistics        that are multiplied with
    float32   float32                    float32                      of float32
    float64   float64                    float64                      of float64
    tf32      float32                    float32                      of float32 rounded to 10 bits of mantissa
    bfloat16  float32                    bfloat16                     of bfloat16, added up in float32
    float16   float32                    float16                      of float16, added up in float32

The last three use the matrix units of GPUs. What an optimizer changes, and what is saved, is float32 in each of them.
bfloat16 has float32's range and 8 bits of its digits; float16 has 11 bits, and a range so small that gradients must be
scaled (`optim.LossScale`). Micikevicius et al. 2018, "Mixed precision training".
"""

from typing import NamedTuple

import numpy as np

from tinyvit.arrays import as_dtype, low_precision_dtype
from tinyvit.backend import AMPERE, capability

MASTER = {"float32": "float32", "float64": "float64", "tf32": "float32", "bfloat16": "float32", "float16": "float32"}
PRECISIONS = ("auto", *MASTER)
GPU_ONLY = ("tf32", "bfloat16", "float16")
VOLTA = 7, 0  # the first GPUs with tensor cores, which know float16 alone


class Precision(NamedTuple):
    """The number formats that a model computes in."""

    name: str
    dtype: np.dtype     # of the parameters and all that is float32 above
    compute: np.dtype   # of activations, and of matrices that are multiplied with
    products: str       # "float32" or "tf32", for `backend.Scope`

    @property
    def is_low(self):
        """Whether products read copies of the matrices in fewer bits."""
        return self.compute != self.dtype


def as_precision(precision, dtype, device):
    """The Precision of this name on a device; None is the dtype's own, "auto" the device's fastest.

    Raises ValueError for an unknown name, for one that the device doesn't have, and for a dtype that doesn't fit.
    """
    dtype, precision = as_dtype(dtype), fastest_precision(device) if precision == "auto" else precision
    if precision in (None, dtype.name):
        return Precision(dtype.name, dtype, dtype, "float32")
    check_precision(precision, device)
    master = as_dtype(MASTER[precision])
    if dtype not in (master, np.dtype("float32")):
        raise ValueError(f"precision {precision!r} keeps its weights in {master}, got dtype {dtype}")
    if not is_available(precision, device):
        raise ValueError(
            f"precision {precision!r} needs a GPU of compute capability 8.0 or later, and {device} has "
            f"{'.'.join(map(str, capability(device)))}; take float16 or float32"
        )
    compute = low_precision_dtype(precision) if precision in ("bfloat16", "float16") else master
    return Precision(precision, master, compute, "tf32" if precision == "tf32" else "float32")


def is_available(precision, device):
    """Whether a device computes in a precision."""
    return precision not in GPU_ONLY or (device != "cpu" and (precision == "float16" or capability(device) >= AMPERE))


def fastest_precision(device):
    """The precision that a device's matrix units are for: bfloat16 on a GPU that has it, float16 on one of Volta's and
    Turing's, else float32."""
    if device == "cpu" or capability(device) < VOLTA:
        return "float32"
    return "float16" if capability(device) < AMPERE else "bfloat16"


def check_precision(precision, device, reason=None):
    """Raise ValueError for an unknown precision, and for one that this device, "cpu" or a GPU, doesn't have.

    reason   why the device is the CPU although a GPU was asked for
    """
    if precision not in PRECISIONS:
        raise ValueError(f"unknown precision {precision!r}; expected one of {', '.join(PRECISIONS)}")
    if precision in GPU_ONLY and device == "cpu":
        raise ValueError(
            f"precision {precision!r} needs a GPU{f', and none can be used: {reason}' if reason else ''}; "
            "on the CPU take float32"
        )
