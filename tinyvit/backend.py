"""Which array library, device, dtype and random numbers the mathematics runs on.

Besides `kernels/`, this is the only file that imports CuPy: everything else asks an array for its library
(`array_module`) and is written once for both.
"""

import hashlib
import sys
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

Array = Any  # a numpy.ndarray or a cupy.ndarray

DTYPES = ("float32", "float64", "complex128")
DEVICES = ("cpu", "cuda")


def array_module(x):
    """The library that `x` belongs to: `numpy`, or `cupy` for an array on a GPU."""
    return sys.modules["cupy"] if type(x).__module__.partition(".")[0] == "cupy" else np


def library(device):
    """The array library of a device: "cpu" is NumPy, "cuda" is CuPy.

    Raises ValueError for an unknown device and for "cuda" without a GPU that works.
    """
    if device == "cpu":
        return np
    if device == "cuda":
        reason = why_no_gpu()
        if reason:
            raise ValueError(
                f"device 'cuda' can't be used: {reason}; use device 'cpu', or install the extra cuda12 or cuda13"
            )
        import cupy

        return cupy
    raise ValueError(f"unknown device {device!r}; expected one of {', '.join(DEVICES)}")


def why_no_gpu():
    """Why a GPU can't be used, or None if it can: one tiny kernel and one product have to run on it."""
    try:
        import cupy
    except ImportError:
        return "CuPy is not installed"
    try:
        x = cupy.ones((2, 2), "float32")
        if float(((x + 1) @ x).sum()) != 16.0:
            return "the GPU gave a wrong result for a 2×2 product"
    except Exception as error:  # whatever is missing (driver, NVRTC, cuBLAS) raises its own kind of error
        return " ".join(f"{type(error).__name__}: {error}".split())
    return None


def choose_device(device):
    """Resolve "auto": "cuda" where a GPU works, else "cpu"; returns the device and the reason for a fall-back."""
    if device != "auto":
        library(device)
        return device, None
    reason = why_no_gpu()
    return ("cpu", reason) if reason else ("cuda", None)


def as_dtype(dtype):
    """`dtype` as a numpy.dtype, if tinyvit computes in it (float32, float64, complex128); else ValueError."""
    try:
        name = np.dtype(dtype).name
    except TypeError:
        name = str(dtype)
    if name not in DTYPES:
        raise ValueError(f"unknown dtype {name!r}; expected one of {', '.join(DTYPES)}")
    return np.dtype(name)


def to_device(x, device):
    """`x` as an array on `device`, copied only if it lives elsewhere."""
    return to_numpy(x) if device == "cpu" else library(device).asarray(x)


def to_numpy(x):
    """`x` as a NumPy array; from a GPU this waits for it."""
    return x.get() if array_module(x) is not np else np.asarray(x)


def erf(x):
    """The error function 2/√π ∫₀ˣ exp(−t²) dt of an array, real or (on the CPU) complex."""
    if array_module(x) is np:
        from scipy.special import erf as function
    else:
        from cupyx.scipy.special import erf as function
    return function(x)


# -- random numbers ---------------------------------------------------------------------------------------

MASK64 = (1 << 64) - 1
GOLDEN_GAMMA = 0x9E3779B97F4A7C15  # 2^64 divided by the golden ratio, made odd


@dataclass(frozen=True)
class Key:
    """Names one random stream: the same key gives the same numbers, in any order, on any number of threads.

    Nothing is drawn *from* a key and nothing in it changes: the number for entry e of sample s is a hash of
    (seed, step, path, s, e). So a mask does not depend on how a batch was split, and a block that is computed
    a second time draws what it drew the first time.

    seed    of the whole run
    step    of the optimizer
    path    of the layer that draws, as in `blocks.3.mlp.drop1`
    sample  global index of the first sample of the batch at hand
    """

    seed: int
    step: int = 0
    path: str = ""
    sample: int = 0

    def at(self, path):
        """The same stream for another layer."""
        return replace(self, path=path)

    def skip(self, samples):
        """The same stream for a batch that starts `samples` later."""
        return replace(self, sample=self.sample + samples)

    def bits(self):
        """128 bits that depend on every part of the key but the sample."""
        name = repr((int(self.seed), int(self.step), self.path)).encode()
        return int.from_bytes(hashlib.blake2b(name, digest_size=16).digest(), "little")

    def generator(self):
        """A NumPy Generator for what is drawn once, on the CPU: initial weights, the order of an epoch."""
        return np.random.Generator(np.random.Philox(key=self.bits()))

    def uniform(self, shape, xp=np):
        """Numbers in [0, 1), float32, shape (B, ...): a row per sample, each row a stream of its own.

        SplitMix64 run as a counter (Steele, Lea & Flood 2014, "Fast splittable pseudorandom number
        generators"): the 64 bits for a pair of entries e of the stream that starts at s are mix(s + e·γ), and the
        streams start at mix(key + sample·γ). Exact integer arithmetic, so NumPy and CuPy give the same bits.
        """
        rows, entries = shape[0], prod(shape[1:])
        first = self.bits() + self.sample * GOLDEN_GAMMA & MASK64
        starts = _mix64(xp.uint64(first) + xp.arange(rows, dtype="uint64") * xp.uint64(GOLDEN_GAMMA))
        counters = xp.arange(1, entries // 2 + 2, dtype="uint64") * xp.uint64(GOLDEN_GAMMA)
        halves = _mix64(starts[:, None] + counters).view("uint32")[:, :entries]  # two numbers out of each 64 bits
        # The upper 24 bits fill a float32's mantissa exactly.
        return ((halves >> xp.uint32(8)).astype("float32") * 2.0**-24).reshape(shape)


def _mix64(z):
    """SplitMix64's finaliser: every bit of the result depends on every bit of z (uint64, wraps around)."""
    uint64 = array_module(z).uint64
    z = (z ^ (z >> uint64(30))) * uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> uint64(27))) * uint64(0x94D049BB133111EB)
    return z ^ (z >> uint64(31))
