"""A stand-in for CuPy, built on NumPy, with the part of CuPy that tinyvit uses and nothing else.

Tables list every function, method and argument; `cuda/test_cupy_has_it.py` compares them with the real CuPy, which
needs no GPU for that. Anything else raises, and so do a host array beside device arrays, a boolean mask as an index
(CuPy would wait for the number of elements), NumPy functions on a device array, and, while `nothing_waits`, a number
that is read back. Arrays lie between guards that no kernel may touch, and CUDA kernels run in `emulated_cuda`.

What is launched is done at once. While a stream is captured it is noted instead, and done whenever the graph is
launched; until then what it computes is not there.

The stand-in can't tell whether a GPU computes the same, only that the code uses nothing that CuPy lacks.
"""

import itertools
import operator
import weakref
from contextlib import contextmanager, nullcontext
from functools import partial, wraps
from math import prod
from time import perf_counter
from types import ModuleType, SimpleNamespace

import numpy as np
import pretend_cublas
from emulated_cuda import emulator

# The functions of the module that are used, with the arguments that may be named, ...
FUNCTIONS = {
    "arange": ("dtype",), "asarray": ("dtype",), "ascontiguousarray": (), "bincount": ("minlength",),
    "broadcast_to": (), "clip": (), "concatenate": ("axis",), "copyto": ("where",), "empty": ("dtype",),
    "empty_like": (), "finfo": (), "full": (), "ones": ("dtype",), "ones_like": (), "result_type": (), "roll": (),
    "stack": ("axis",), "take_along_axis": (), "vdot": (), "where": (), "zeros": ("dtype",), "zeros_like": (),
}  # fmt: skip
UFUNCS = {
    "add", "cos", "exp", "floor", "isfinite", "left_shift", "log", "logaddexp", "maximum", "minimum", "rint", "sin",
    "tanh",
}  # fmt: skip
UFUNC_ARGUMENTS = ("out",)
REAL_ONLY = {"floor", "left_shift", "logaddexp"}  # ufuncs that CuPy doesn't have for complex numbers
NUMPYS = {"shape"}  # functions of NumPy that the package calls on a device's arrays, too: CuPy answers for it
TYPES = {"int32", "uint32", "uint64"}
# ... and methods of its arrays.
METHODS = {
    "all": ("axis", "keepdims"), "any": ("axis", "keepdims"), "argmax": ("axis",), "argsort": ("axis",),
    "astype": ("copy",), "copy": (), "cumsum": ("axis",), "max": ("axis", "keepdims"),
    "mean": ("axis", "dtype", "keepdims"), "min": ("axis", "keepdims"), "ravel": (), "reshape": (),
    "sum": ("axis", "dtype", "keepdims"), "take": (), "transpose": (), "view": (),
}  # fmt: skip
PROPERTIES = ("T", "mT", "real", "imag")
ANYWHERE = {"copy", "reshape", "transpose", "view"}  # methods of arrays of any device: views, and what brings them here

GRAPHS_MEMORY = weakref.WeakSet()
GUARD = 256  # bytes before and after an array's memory, all of them 0xff, which is NaN as a number


def guarded(shape, dtype, order="C"):
    """New memory between guards, full of 0xff: reading what was never written gives NaN."""
    dtype = np.dtype(dtype)
    size = prod(shape) * dtype.itemsize
    Pool.take(size)
    memory = np.full(size + 3 * GUARD, 0xFF, "uint8")
    start = GUARD + -memory.ctypes.data % GUARD
    whole = Memory(memory, slice(start, start + size))
    if Stream.current.captured is not None:
        Stream.current.captured.append(whole.check)  # which keeps it: on a GPU, a graph's pool does
        GRAPHS_MEMORY.add(whole)
    return ndarray(memory[start : start + size].view(dtype).reshape(shape, order=order), whole)


class Memory:
    """The memory of an array and all its views."""

    def __init__(self, memory, inside):
        self.bytes, self.inside, self.device = memory, inside, Device.current
        pretend_cublas.ALLOCATED[memory.ctypes.data + inside.start] = self

    def __len__(self):
        return self.inside.stop - self.inside.start

    def __del__(self):
        Pool.give_back(len(self))

    def check(self):
        outside = self.bytes[: self.inside.start], self.bytes[self.inside.stop :]
        assert all((guard == 0xFF).all() for guard in outside), "something was written before or after an array"


class OutOfMemoryError(MemoryError):
    """cupy.cuda.memory's."""


OutOfMemoryError.__module__ = "cupy.cuda.memory"


class Pool:
    """CuPy's memory pool for all arrays of all devices; a test may set the `limit` and read the `peak`."""

    used, peak, held, limit = 0, 0, 0, 1 << 40

    @classmethod
    def take(cls, size):
        size = -(-size // 512) * 512  # what CuPy rounds to
        if cls.used + size > cls.limit:
            raise OutOfMemoryError(f"Out of memory allocating {size:,} bytes (allocated so far: {cls.used:,} bytes).")
        cls.used += size
        cls.peak, cls.held = max(cls.peak, cls.used), max(cls.held, cls.used)

    @classmethod
    def give_back(cls, size):
        cls.used -= -(-size // 512) * 512

    def malloc(self, size):
        raise AssertionError("the module makes all arrays")

    def free_bytes(self):
        return 0

    def total_bytes(self):
        return Pool.held

    def free_all_blocks(self):
        Pool.held = Pool.used


class ndarray:
    """An array on the pretended device.

    host     the NumPy array that it is made of
    whole    its memory
    base     the array that this is a view of, or None
    """

    def __init__(self, host, whole, base=None):
        self.host, self.whole, self.base = host, whole, base

    shape, dtype, ndim, size, nbytes, itemsize, strides = (
        property(operator.attrgetter(f"host.{name}"))
        for name in ("shape", "dtype", "ndim", "size", "nbytes", "itemsize", "strides")
    )
    flags = property(lambda self: SimpleNamespace(
        c_contiguous=self.host.flags.c_contiguous, f_contiguous=self.host.flags.f_contiguous
    ))  # fmt: skip
    data = property(lambda self: SimpleNamespace(ptr=self.host.ctypes.data))
    device = property(lambda self: SimpleNamespace(id=self.whole.device))

    def memory(self):
        """All bytes that this is a view of."""
        return self.whole.bytes

    def __array__(self, *args, **kwargs):
        raise TypeError("Implicit conversion to a NumPy array is not allowed")

    def __array_function__(self, function, types, args, kwargs):
        if function.__name__ not in NUMPYS:
            raise TypeError(f"numpy.{function.__name__} of an array of the device")
        return function(*(getattr(x, "host", x) for x in args), **kwargs)

    def __array_ufunc__(self, ufunc, method, *args, **kwargs):
        """NumPy asks here about a scalar of its own with a device array, which CuPy computes, too."""
        if method != "__call__" or kwargs:
            raise TypeError(f"numpy.{ufunc.__name__}.{method} of an array of the device")
        args = tuple(map(on_host, args))
        return computed(lambda: ufunc(*args))

    def get(self):
        self.wait()
        return self.host.copy()

    def set(self, x):
        assert type(x) is np.ndarray and (x.shape, x.dtype) == (self.shape, self.dtype) and self.flags.c_contiguous
        uploads()
        self.host[...] = x

    def wait(self):
        """Wait for the device."""
        assert not Waiting.forbidden, "this waits for the GPU"
        assert Stream.current.captured is None, "what is captured isn't computed yet"

    def __len__(self):
        return len(self.host)

    def __iter__(self):
        return (self[i] for i in range(len(self)))

    def __getitem__(self, key):
        key = index(key)
        return self.result(lambda: self.host[key])

    def __setitem__(self, key, value):
        key, value = index(key), on_host(value)
        launched(lambda: operator.setitem(self.host, key, value))

    def result(self, work):
        """Put NumPy's result of `work()` on the device: a view of this array, or a new array."""
        host = without_warnings(work)
        if isinstance(host, np.ndarray) and host.base is not None and np.may_share_memory(host, self.host):
            return ndarray(host, self.whole, self if self.base is None else self.base)
        return computed(work, host)

    def __repr__(self):
        return f"pretended {self.host!r}"


def method(name, named):
    def call(self, *args, **kwargs):
        unknown = set(kwargs) - set(named)
        assert not unknown, f"ndarray.{name}: {unknown} is not among the arguments known of CuPy"
        here, args = self.host if name in ANYWHERE else on_host(self), tuple(map(on_host, args))
        kwargs = {k: on_host(v) for k, v in kwargs.items()}
        return self.result(lambda: getattr(here, name)(*args, **kwargs))

    return call


for name, named in METHODS.items():
    setattr(ndarray, name, method(name, named))
for name in PROPERTIES:
    setattr(ndarray, name, property(lambda self, name=name: self.result(lambda: getattr(self.host, name))))


def operation(function, swap=False):
    def call(self, other=None):
        if not is_operand(other):
            return NotImplemented
        if function is operator.matmul:
            refuse_cublas()
        pair = (on_host(self),) if other is None else (on_host(self), on_host(other))
        return computed(lambda: function(*(reversed(pair) if swap else pair)))

    return call


def in_place(function):
    def call(self, other):
        if not is_operand(other):
            return NotImplemented
        pair = on_host(self), on_host(other)
        launched(lambda: function(*pair))
        return self

    return call


def read(name):
    def call(self):
        self.wait()
        return getattr(self.host, name)()

    return call


def is_operand(x):
    return x is None or isinstance(x, (ndarray, int, float, complex, np.generic, np.ndarray))


BINARY = "add sub mul truediv floordiv mod pow matmul and or xor lshift rshift"
for name in BINARY.split():
    function = getattr(operator, f"__{name}__")
    setattr(ndarray, f"__{name}__", operation(function))
    setattr(ndarray, f"__r{name}__", operation(function, swap=True))
    if name != "matmul":
        setattr(ndarray, f"__i{name}__", in_place(getattr(operator, f"__i{name}__")))
for name in ("eq", "ne", "lt", "le", "gt", "ge", "neg", "invert", "abs"):
    setattr(ndarray, f"__{name}__", operation(getattr(operator, f"__{name}__")))
for name in ("__float__", "__int__", "__bool__", "__complex__"):
    setattr(ndarray, name, read(name))
ndarray.__hash__ = None
ndarray.__module__ = "cupy"


def launched(work):
    """Do what goes to the device: now, or whenever the graph is launched that the current stream is captured into."""
    if Stream.current.captured is None:
        work()
    else:
        Stream.current.captured.append(work)


def computed(work, result=None):
    """NumPy's result of `work()` on the device; `result`, if it is there already, unless the stream is captured."""
    result = without_warnings(work) if result is None else result
    if Stream.current.captured is None or not isinstance(result, (np.ndarray, np.generic)):
        return on_device(result)
    new = room_for(result)
    launched(lambda: operator.setitem(new.host, ..., work()))
    return new


def without_warnings(work):
    """`work()`; while a stream is captured only its shape counts, as nothing that it computes with is there."""
    with np.errstate(all="ignore") if Stream.current.captured is not None else nullcontext():
        return work()


def uploads():
    """CuPy refuses to upload in what is captured, as that memory of the host is something else by the next launch."""
    if Stream.current.captured is not None:
        raise RuntimeError("the current stream is capturing, so H2D transfers are disallowed")


def refuse_cublas():
    """CuPy calls no function of cuBLAS on a stream that is captured."""
    if Stream.current.captured is not None:
        raise NotImplementedError("calling cuBLAS API during stream capture is currently unsupported")


class Waiting:
    """Whether a wait of the host for the device is an error."""

    forbidden = 0


@contextmanager
def nothing_waits():
    """Inside this block nothing may be read back from the device, as in a training step."""
    Waiting.forbidden += 1
    try:
        yield
    finally:
        Waiting.forbidden -= 1


def on_device(x):
    """Put NumPy's result on the device; a scalar becomes a 0-d array, as in CuPy."""
    if isinstance(x, tuple):
        return tuple(map(on_device, x))
    if not isinstance(x, (np.ndarray, np.generic)):
        return x
    new = room_for(x)
    new.host[...] = x
    return new


def room_for(x):
    """A new array like NumPy's x."""
    return guarded(np.shape(x), x.dtype, "F" if isinstance(x, np.ndarray) and x.flags.f_contiguous else "C")


def on_host(x):
    """A value that NumPy can compute with: the host array of a device array, a scalar, or a list of them."""
    if isinstance(x, (list, tuple)):
        return type(x)(map(on_host, x))
    assert not isinstance(x, np.ndarray), "a host array among the device's"
    if not isinstance(x, ndarray):
        return x
    assert x.whole.device == Device.current, f"an array of device {x.whole.device} while {Device.current} is current"
    return x.host


def index(key):
    parts = tuple(map(on_host, key)) if isinstance(key, tuple) else on_host(key)
    for part in parts if isinstance(parts, tuple) else (parts,):
        waits = isinstance(part, np.ndarray) and part.dtype.kind == "b"
        assert not waits, "a mask as an index waits for its size"
    return parts


def from_host(x, dtype=None):
    """A device array with the content of a host array, or of another one of the device."""
    if isinstance(x, ndarray):
        return computed(lambda: np.array(x.host, dtype))
    uploads()
    return on_device(np.array(x, dtype))


# -- the module -------------------------------------------------------------------------------------------------------


def function(name, named):
    numpys = getattr(np, name)

    def call(*args, **kwargs):
        unknown = set(kwargs) - set(named)
        assert not unknown, f"cupy.{name}: {unknown} is not among the arguments known of CuPy"
        args = tuple(map(on_host, args))
        if name in REAL_ONLY and any(np.iscomplexobj(arg) for arg in args):
            raise TypeError(f"cupy.{name} has no loop for complex numbers")
        if name == "vdot":
            refuse_cublas()
        options = {key: on_host(value) for key, value in kwargs.items()}
        if "out" in kwargs or name == "copyto":
            launched(lambda: numpys(*args, **options))
            return kwargs.get("out")
        return computed(lambda: numpys(*args, **options))

    call.__name__ = name
    return call


def asarray(x, dtype=None):
    if isinstance(x, ndarray) and (dtype is None or x.dtype == dtype):
        return x
    return from_host(x, dtype)


def empty(shape, dtype=float):
    return guarded(shape if isinstance(shape, tuple) else (shape,), dtype)


def empty_like(x):
    return guarded(x.shape, x.dtype)


def broadcast_to(x, shape):
    return x.result(lambda: np.broadcast_to(x.host, shape))


class RawModule:
    """A module of CUDA kernels; the emulator ignores `options`."""

    def __init__(self, code, options=(), backend="nvrtc"):
        self.module = emulator.Module(code)

    def get_function(self, name):
        kernel = self.module.get_function(name)

        def launch(grid, block, arguments, shared_mem=0):
            for side, most in zip(grid, (2**31 - 1, 65535, 65535)):
                assert 1 <= side <= most, f"{name}: a grid of {grid} can't be launched"
            for argument in arguments:
                on_host(argument)  # of the current device

            def work():
                kernel(grid, block, arguments)
                for argument in arguments:
                    if isinstance(argument, ndarray):
                        argument.whole.check()

            launched(work)

        return launch


# -- the device --------------------------------------------------------------------------------------------------------


class Device:
    """cupy.cuda.Device: `with` makes it the current one."""

    current, count = 0, 1

    def __init__(self, number=None):
        self.id = Device.current if number is None else number
        self.before = []

    compute_capability = "90"
    __hash__ = None  # as CuPy's has none

    def __enter__(self):
        if not 0 <= self.id < Device.count:
            raise RuntimeError("cudaErrorInvalidDevice: invalid device ordinal")
        self.before.append(Device.current)
        Device.current = self.id
        return self

    def __exit__(self, *error):
        Device.current = self.before.pop()


class Event:
    """cupy.cuda.Event: what is launched has ended here before anything else goes on."""

    def record(self):
        self.at = perf_counter()


class Stream:
    """cupy.cuda.Stream: what is launched has ended before anything else goes on, so there is nothing to wait for."""

    numbers = itertools.count()

    def __init__(self, non_blocking=False):
        self.ptr, self.captured, self.before = next(Stream.numbers), None, []

    def __enter__(self):
        self.before.append(Stream.current)
        Stream.current = self
        return self

    def __exit__(self, *error):
        Stream.current = self.before.pop()

    def record(self):
        return Event()

    def wait_event(self, event):
        assert isinstance(event, Event)

    def synchronize(self):
        assert not Waiting.forbidden or self is not Stream.null, "this waits for the GPU"

    def begin_capture(self):
        assert self is Stream.current is not Stream.null and self.captured is None
        self.captured = []

    def is_capturing(self):
        return self.captured is not None

    def end_capture(self):
        graph, self.captured = Graph(self.captured), None
        return graph


Stream.null = Stream.current = Stream()


class Graph:
    """cupy.cuda.Graph: the launches that were captured.

    On a GPU all graphs compute in the same memory. Here each has its own, and a launch clears that of all of them: what
    an earlier one left there is lost.
    """

    def __init__(self, launches):
        self.launches = launches

    def launch(self):
        for memory in GRAPHS_MEMORY:
            memory.bytes[memory.inside] = 0xFF
        for work in self.launches:
            launched(work)


class MemoryPool:
    """cupy.cuda.MemoryPool. All arrays are in the `Pool`, and so are those that a graph computes."""

    def __init__(self, allocator):
        assert callable(allocator)

    malloc, free_all_blocks = Pool.malloc, Pool.free_all_blocks

    def set_limit(self, size):
        assert size == 0

    def total_bytes(self):
        return sum(map(len, GRAPHS_MEMORY))


class RawMemory:
    """cupy.cuda.Memory of which there is none."""

    def __init__(self, size):
        raise CUDARuntimeError("cudaErrorMemoryAllocation: out of memory")


class MemoryPointer:
    """cupy.cuda.MemoryPointer."""

    def __init__(self, memory, offset):
        self.mem = memory


class CUDARuntimeError(RuntimeError):
    """cupy.cuda.runtime's."""


@contextmanager
def using_allocator(allocator):
    assert callable(allocator)
    yield


def erf(x):
    """cupyx.scipy.special.erf, which CuPy has for real numbers only."""
    from scipy import special

    if x.dtype.kind == "c":
        raise TypeError("cupyx.scipy.special.erf has no loop for complex numbers")
    return computed(lambda: special.erf(x.host))


def through_cupy(product):
    """A product of cuBLAS as CuPy calls it."""

    @wraps(product)
    def call(handle, *arguments):
        assert handle == pretend_cublas.HANDLE
        refuse_cublas()
        product(handle, *arguments)

    return call


class Cublas(SimpleNamespace):
    """cupy.cuda.cublas, a library that finds the functions of cuBLAS itself, too."""

    @property
    def __file__(self):
        return pretend_cublas.library()


pretend_cublas.launched, pretend_cublas.current_stream = launched, lambda: Stream.current
cupy = ModuleType("cupy")
for name, named in FUNCTIONS.items():
    setattr(cupy, name, function(name, named))
for name in UFUNCS:
    setattr(cupy, name, function(name, UFUNC_ARGUMENTS))
cupy.add.at = lambda x, where, by: launched(partial(np.add.at, x.host, on_host(where), on_host(by)))
for name in TYPES:
    setattr(cupy, name, getattr(np, name))
for own in (ndarray, asarray, broadcast_to, empty, empty_like, RawModule):
    setattr(cupy, own.__name__, own)
cupy.get_default_memory_pool = Pool
cupy.__version__ = "14.2.0"
cupy.cuda = SimpleNamespace(
    Device=Device, Event=Event, Stream=Stream, get_current_stream=lambda device_id=-1: Stream.current,
    MemoryPool=MemoryPool, Memory=RawMemory, MemoryPointer=MemoryPointer, using_allocator=using_allocator,
    get_elapsed_time=lambda begun, ended: 1e3 * (ended.at - begun.at),
    cublas=Cublas(
        gemmEx=through_cupy(pretend_cublas.gemmEx), create=pretend_cublas.create, destroy=pretend_cublas.destroy,
        gemmStridedBatchedEx=through_cupy(pretend_cublas.gemmStridedBatchedEx),
        CUBLAS_COMPUTE_32F=pretend_cublas.COMPUTE_32F, CUBLAS_COMPUTE_32F_FAST_TF32=pretend_cublas.COMPUTE_TF32,
        CUBLAS_GEMM_DEFAULT=pretend_cublas.DEFAULT, setMathMode=pretend_cublas.setMathMode,
    ),
    runtime=SimpleNamespace(
        CUDA_R_32F=pretend_cublas.R_32F, CUDA_R_16F=pretend_cublas.R_16F, CUDA_R_16BF=pretend_cublas.R_16BF,
        driverGetVersion=lambda: 13000, runtimeGetVersion=lambda: 12090, getDeviceCount=lambda: Device.count,
        getDeviceProperties=lambda number: {"name": b"a pretended GPU", "multiProcessorCount": 132},
        memGetInfo=lambda: (Pool.limit - Pool.used, Pool.limit), CUDARuntimeError=CUDARuntimeError,
    ),
    get_cublas_handle=pretend_cublas.get_handle, memory=SimpleNamespace(OutOfMemoryError=OutOfMemoryError),
)  # fmt: skip
special = ModuleType("cupyx.scipy.special")
special.erf = erf
# As `sys.modules` has them once `import cupy` and `import cupyx.scipy.special` are done.
MODULES = {
    "cupy": cupy, "cupyx": ModuleType("cupyx"), "cupyx.scipy": ModuleType("cupyx.scipy"),
    "cupyx.scipy.special": special,
}  # fmt: skip
