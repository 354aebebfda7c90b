"""Array library, device, dtype and random numbers.

Besides `kernels/`, only this file imports CuPy: everything else asks an array for its library (`array_module`) and is
written once for both.
"""

import gc
import hashlib
import re
import sys
import warnings
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import cache
from math import pi, prod
from typing import Any, NamedTuple

import numpy as np

Array = Any  # a numpy.ndarray or a cupy.ndarray

DTYPES = ("float32", "float64", "complex128")
LOCKED = 1 << 26  # bytes, at most, of an array that goes to a GPU through pinned memory


def array_module(x):
    """The library that `x` belongs to: `numpy`, or `cupy` for an array on a GPU."""
    return sys.modules["cupy"] if is_of_cupy(type(x)) else np


@cache
def is_of_cupy(array_type):
    return array_type.__module__.partition(".")[0] == "cupy"


def as_dtype(dtype):
    """`dtype` as a numpy.dtype, if tinyvit keeps weights in it (float32, float64, complex128); else ValueError."""
    try:
        name = np.dtype(dtype).name
    except TypeError:
        name = str(dtype)
    if name not in DTYPES:
        hint = "; ask for it by precision=, weights stay float32" if name in ("bfloat16", "float16") else ""
        hint = f"; a device goes by name, device={name!r}" if name.startswith(("cpu", "cuda")) else hint
        raise ValueError(f"unknown dtype {name!r}; expected one of {', '.join(DTYPES)}{hint}")
    return np.dtype(name)


def low_precision_dtype(name):
    """The dtype "float16" or "bfloat16"; ml_dtypes, which the GPU extras install, gives NumPy the latter."""
    if str(name) == "bfloat16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(name)


# -- devices ----------------------------------------------------------------------------------------------
#
# "cpu", or a GPU: "cuda:0", "cuda:1", … "cuda" is CuPy's current one, by default the first; "auto" is that one if it
# works, else the CPU.


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
    """Where an array is: "cpu", or "cuda:0"."""
    return "cpu" if array_module(x) is np else f"cuda:{x.device.id}"


def to_device(x, device):
    """`x` as an array on `device`, copied only if it lives elsewhere."""
    if device == "cpu":
        return to_numpy(x)
    xp, device = library(device), as_device(device)
    with current(device):
        if array_module(x) is np:
            return uploaded(xp, np.asarray(x))
        # CuPy's asarray leaves an array on the GPU that it is on; copy() brings it to the current one.
        return x.copy() if device_of(x) != device else x


def uploaded(xp, x):
    """A NumPy array on the current GPU.

    CuPy's asarray copies through pinned memory, which it rounds up to a power of two and keeps, so that nothing waits.
    That suits batches and parameters; for a large data set it could take all memory.
    """
    if x.nbytes <= LOCKED:
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
        return in_words(error)
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
        return in_words(error)


def in_words(error):
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
    owner      the `Compute` that set this, if one did
    """

    products: str = "float32"
    owner: Any = None


_scope = ContextVar("tinyvit.scope", default=Scope())  # noqa: B039 (a tuple)


def scope():
    """The `Scope` that the innermost `with scoped(…):` has set."""
    return _scope.get()


@contextmanager
def scoped(**changes):
    """Inside `with scoped(products="tf32"):` the `Scope` has these values, and its others as before."""
    token = _scope.set(scope()._replace(**changes))
    try:
        yield
    finally:
        _scope.reset(token)


def on_gpu(x):
    """Whether an array is one of a GPU."""
    return array_module(x) is not np


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


# -- random numbers ---------------------------------------------------------------------------------------

MASK64 = (1 << 64) - 1
GOLDEN_GAMMA = 0x9E3779B97F4A7C15  # 2^64 divided by the golden ratio, made odd


@dataclass(frozen=True)
class Key:
    """A random stream: the same key gives the same numbers, in any order and on any number of threads.

    A key has no state: the number for entry e of sample s is a hash of (seed, step, path, s, e). So a mask doesn't
    depend on how a batch was split, and a recomputed block draws the same one again.

    seed    of the whole run
    step    of the optimizer; None: `train_step` says which, and elsewhere it is 0
    path    of the layer that draws, as in `blocks.3.mlp.drop1`
    sample  global index of the first sample of the batch
    on_gpu  where the numbers of a step lie on a GPU, if the step is replayed: a `cuda_graph.StreamStarts`
    """

    seed: int
    step: int | None = None
    path: str = ""
    sample: int = 0
    on_gpu: Any = field(default=None, compare=False, repr=False)

    def at(self, path):
        """The stream of another layer."""
        return replace(self, path=path)

    def skip(self, samples):
        """The stream of a batch that starts `samples` later."""
        return replace(self, sample=self.sample + samples)

    def bits(self):
        """128 bits that depend on everything in the key except the sample."""
        name = repr((int(self.seed), int(self.step or 0), self.path)).encode()
        return int.from_bytes(hashlib.blake2b(name, digest_size=16).digest(), "little")

    def first(self):
        """64 bits from which the streams of the first sample and of those after it start."""
        return self.bits() + self.sample * GOLDEN_GAMMA & MASK64

    def start(self):
        """`first` as np.uint64; of a step that is replayed an array () on the GPU, which holds that of the last one."""
        return np.uint64(self.first()) if self.on_gpu is None else self.on_gpu.start(self)

    def generator(self):
        """A NumPy Generator for draws on the CPU: initial weights, the order of an epoch."""
        return np.random.Generator(np.random.Philox(key=self.bits()))

    def uniform(self, shape, xp=np):
        """Numbers in [0, 1), float32, shape (B, ...): a row per sample, each row a stream of its own.

        SplitMix64 run as a counter (Steele, Lea & Flood 2014, "Fast splittable pseudorandom number
        generators"): the 64 bits for a pair of entries e of the stream that starts at s are mix(s + e·γ), and the
        streams start at mix(key + sample·γ). Exact integer arithmetic, so NumPy and CuPy give the same bits.
        """
        rows, entries = shape[0], prod(shape[1:])
        starts = _mix64(self.start() + xp.arange(rows, dtype="uint64") * xp.uint64(GOLDEN_GAMMA))
        counters = xp.arange(1, entries // 2 + 2, dtype="uint64") * xp.uint64(GOLDEN_GAMMA)
        halves = _mix64(starts[:, None] + counters).view("uint32")[:, :entries]  # two numbers from each 64 bits
        # The upper 24 bits fill a float32's mantissa exactly.
        return ((halves >> xp.uint32(8)).astype("float32") * 2.0**-24).reshape(shape)

    def normal(self, shape, xp=np, dtype="float32"):
        """Numbers from N(0, 1), of shape (B, ...): a row per sample, as of `uniform`, two of whose numbers make one.

        √(−2 log(1 − u)) cos(2π v), in float64 whatever the dtype. Box & Muller 1958, "A note on the generation of
        random normal deviates".
        """
        pairs = self.uniform((shape[0], prod(shape[1:]), 2), xp).astype("float64")
        return ((-2 * xp.log(1 - pairs[..., 0])) ** 0.5 * xp.cos(2 * pi * pairs[..., 1])).astype(dtype).reshape(shape)


def _mix64(z):
    """SplitMix64's finaliser: every bit of the result depends on every bit of z (uint64, wraps around)."""
    uint64 = array_module(z).uint64
    z = (z ^ (z >> uint64(30))) * uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> uint64(27))) * uint64(0x94D049BB133111EB)
    return z ^ (z >> uint64(31))
