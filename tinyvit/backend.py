"""Devices: "cpu", or a GPU, "cuda:0", "cuda:1", …

"cuda" is CuPy's current GPU, by default the first; "auto" is that one if it works, else the CPU. Besides `kernels/`, no
other file imports CuPy.
"""

import gc
import os
import re
import sys
import warnings
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np

from tinyvit.arrays import array_module, each_image
from tinyvit.keys import Key as Key

MAX_PINNED_BYTES = 1 << 26  # of an array that goes to a GPU through pinned memory


def library(device):
    """The array library of a device: NumPy for the CPU, CuPy for a GPU; raises ValueError as `as_device` does."""
    return np if as_device(device) == "cpu" else sys.modules["cupy"]


def as_device(device):
    """The full name of a device, "cpu" or "cuda:0".

    Raises ValueError for an unknown device, and for a GPU that isn't there or can't be used; "auto" never does.
    """
    return choose_device(device)[0]


def choose_device(device):
    """(the full name of a device, the reason if "auto" fell back on the CPU, else None)."""
    check_device(device)
    if device == "cpu":
        return "cpu", None
    number = int(device[5:]) if device.startswith("cuda:") else None
    reason = why_no_gpu(number)
    if reason and device == "auto":
        return "cpu", reason
    if reason:
        raise ValueError(f"device {device!r} can't be used: {reason}; use device 'cpu'")
    return f"cuda:{sys.modules['cupy'].cuda.Device().id if number is None else number}", None


def check_device(device):
    """Raise ValueError for an unknown device."""
    if not re.fullmatch(r"auto|cpu|cuda(:(0|[1-9][0-9]{0,3}))?", str(device)):
        raise ValueError(f"unknown device {device!r}; expected one of auto, cpu, cuda, or cuda:0, cuda:1, …")


def current(device):
    """`with current("cuda:1"):` makes arrays, and starts kernels, on that GPU; on the CPU it does nothing."""
    if device == "cpu":
        return nullcontext()
    return sys.modules["cupy"].cuda.Device(int(device[5:]))


AMPERE = 8, 0  # the first GPUs whose tensor cores know TF32 and bfloat16


def capability(device):
    """The compute capability of a GPU, as (9, 0)."""
    text = sys.modules["cupy"].cuda.Device(int(device[5:])).compute_capability
    return int(text[:-1]), int(text[-1])


def free_memory(device):
    """Free bytes of a GPU's memory, including those that CuPy holds for reuse."""
    cupy = sys.modules["cupy"]
    with current(device):
        free, _ = cupy.cuda.runtime.memGetInfo()
        return free + cupy.get_default_memory_pool().free_bytes()


def physical_memory():
    """Bytes of memory that this machine has, or None where the system doesn't say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def expect_memory(needed, what, advice=""):
    """Raise ValueError if this machine has fewer than `needed` bytes of memory; `what` starts the message."""
    memory = physical_memory()
    if memory is not None and needed > memory:
        raise ValueError(f"{what} {needed / 2**30:.1f} GiB, but this machine has {memory / 2**30:.1f}{advice}")


def peak_of_pool(function, device):
    """Bytes that CuPy's memory pool grows by while a function runs."""
    with current(device):
        pool = sys.modules["cupy"].get_default_memory_pool()
        gc.collect()  # arrays in cycles: freed while the function runs, they would be reused by it
        pool.free_all_blocks()
        before = pool.total_bytes()
        function()
        return pool.total_bytes() - before


def gpu(device):
    """The name of a GPU, the versions of CUDA and CuPy, and the newest CUDA that the driver knows, to report with every
    time measured on it."""
    cupy = sys.modules["cupy"]
    properties = cupy.cuda.runtime.getDeviceProperties(int(device[5:]))
    facts = {"gpu": properties["name"].decode(), "cupy": cupy.__version__}
    facts["cuda"] = version(cupy.cuda.runtime.runtimeGetVersion())
    return facts | {"driver": version(cupy.cuda.runtime.driverGetVersion())}


def device_of(x):
    """The device of an array: "cpu", or "cuda:0"."""
    return "cpu" if array_module(x) is np else f"cuda:{x.device.id}"


def to_device(x, device):
    """`x` as an array on `device`, copied only if it lives elsewhere."""
    if device == "cpu":
        return to_numpy(x)
    xp, device = library(device), as_device(device)
    with current(device):
        if getattr(getattr(x, "dtype", None), "kind", None) == "O":  # images of several sizes
            return each_image(partial(to_device, device=device), x)
        if array_module(x) is np:
            return upload(xp, np.asarray(x))
        # CuPy's asarray leaves an array on the GPU that it is on; copy() brings it to the current one.
        return x.copy() if device_of(x) != device else x


def upload(xp, x):
    """A NumPy array on the current GPU.

    CuPy's asarray copies through pinned memory, which it rounds up to a power of two and keeps, so that nothing waits.
    That suits batches and parameters; for a large data set it could take all memory.
    """
    if x.nbytes <= MAX_PINNED_BYTES:
        return xp.asarray(x)
    copy = xp.empty(x.shape, x.dtype)
    copy.set(x)
    return copy


def to_numpy(x):
    """`x` as a NumPy array; from a GPU this waits for it."""
    return x.get() if array_module(x) is not np else np.asarray(x)


def constant(x, device, dtype):
    """An array in a dtype on a device, to be cached and shared: on the CPU it is read-only."""
    x = np.asarray(x, dtype)
    x.flags.writeable = False
    return to_device(x, device)


# -- whether there is a GPU -------------------------------------------------------------------------------


CAUSES = {  # words in the error of a library: what they mean
    "cudaerrornodevice": "there is no NVIDIA GPU",
    "cudaerrorinsufficientdriver": "there is no NVIDIA driver, or it is too old for this CuPy",
    "no such file": "a library of CUDA is missing (pip install 'tinyvit[cuda12]', or cuda13, brings it)",
    "cannot open source file": "CUDA's headers are missing (pip install 'tinyvit[cuda12]', or cuda13, brings them)",
    "out of memory": "its memory is full",
}


def why_no_gpu(number=None):
    """Why the GPU of this number, by default the current one, can't be used, or None if it can: a small kernel and a
    product are tried."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import cupy
        count, now = cupy.cuda.runtime.getDeviceCount(), cupy.cuda.Device().id
    except Exception as error:  # a library of another version raises whatever it likes
        if getattr(error, "name", None) == "cupy":
            return "CuPy isn't installed (pip install 'tinyvit[cuda12]', or cuda13)"
        return describe(error)
    number = now if number is None else number
    if number >= count:
        return f"there {'is 1 GPU, cuda:0' if count == 1 else f'are {count} GPUs, cuda:0 to cuda:{count - 1}'}"
    with cupy.cuda.Device(number):
        return why_no_kernel(cupy, number)


@cache
def why_no_kernel(cupy, number):
    """Why the current GPU, which has this number, can't compute, or None if it can; tried once per process."""
    try:
        x = cupy.ones((2, 2), "float32") + 1
        return None if float((x @ x).sum()) == 32 else "it gave a wrong result for a 2×2 product"
    except Exception as error:
        return describe(error)


def describe(error):
    """The cause of an error of CuPy in plain words, if it is a known one, and the error as one line."""
    said = " ".join(f"{type(error).__name__}: {error}".replace("=", " ").split())[:300]  # without CuPy's rules of ====
    cause = next((cause for words, cause in CAUSES.items() if words in said.lower()), "CuPy can't compute")
    return f"{cause} ({said})"


def version(number):
    """12090 as 12.9."""
    return f"{number // 1000}.{number % 1000 // 10}"


# -- products ---------------------------------------------------------------------------------------------


class Scope(NamedTuple):
    """Settings of an operation on a GPU, besides its arguments.

    products   "tf32" where the factors of float32 products are rounded to 10 bits of mantissa; sums stay float32, and
               other dtypes and NumPy are not affected
    owner      the `nn.Storage` that set this, if one did
    """

    products: str = "float32"
    owner: Any = None


_scope = ContextVar("tinyvit.scope", default=Scope())  # noqa: B039 (a tuple)


def scope():
    """The `Scope` that the innermost `with set_scope(…):` has set."""
    return _scope.get()


@contextmanager
def set_scope(**changes):
    """Inside `with set_scope(products="tf32"):` the `Scope` has these values, and its others as before."""
    token = _scope.set(scope()._replace(**changes))
    try:
        yield
    finally:
        _scope.reset(token)


def erf(x):
    """The error function 2/√π ∫₀ˣ exp(−t²) dt of an array, real or complex.

    CuPy has none for complex numbers, which only gradient checks need: the CPU computes those.
    """
    if array_module(x) is np:
        from scipy.special import erf as function

        return function(x)
    if x.dtype.kind == "c":
        return array_module(x).asarray(erf(x.get()))
    from cupyx.scipy.special import erf as function

    return function(x)
