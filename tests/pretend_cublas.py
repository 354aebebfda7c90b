"""The functions of cuBLAS that tinyvit calls, in NumPy, and as strict as the library's documentation.

Addresses, leading dimensions and strides are used as given, as on a GPU; unlike a GPU, these functions report errors:
matrices that leave their array, a result that overlaps an operand or itself, incompatible types.

CuPy calls them by its own names, and tinyvit some of them in a shared library, `library()`, as in the real one.
"""

import ctypes
import itertools
import traceback
import weakref
from ctypes import CFUNCTYPE, c_int, c_void_p
from functools import cache, partial

import numpy as np
from emulated_cuda import emulator

R_32F, R_16F, R_16BF = 0, 2, 14
COMPUTE_32F, COMPUTE_TF32, DEFAULT = 68, 77, -1
NO_REDUCED_SUMS = 16  # CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION
HANDLE = 0x5EED  # CuPy's; others follow
NUMBERS = itertools.count(HANDLE + 1)
MODE = {}
ALLOCATED = weakref.WeakValueDictionary()  # the memory of every array of the device, by its address

# cublasGemmEx's table for CUBLAS_COMPUTE_32F: the types of A and B, and of C.
TYPES = {(R_32F, R_32F), (R_16BF, R_16BF), (R_16BF, R_32F), (R_16F, R_16F), (R_16F, R_32F)}


def number_type(code):
    if code == R_16BF:
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype({R_32F: "float32", R_16F: "float16"}[code])


def matrices(name, address, code, rows, columns, ld, stride=0, count=1):
    """The matrices at an address as cuBLAS reads them, (count, rows, columns), in columns of `ld` numbers."""
    for number, least in ((rows, 0), (columns, 0), (ld, max(1, rows)), (count, 0)):
        assert least <= number < 2**31, f"cuBLAS: {name} has {rows} rows, {columns} columns, leading dimension {ld}"
    dtype = number_type(code)
    assert address % dtype.itemsize == 0, f"cuBLAS: {name} doesn't start on a number"
    span = (stride * (count - 1) + ld * (columns - 1) + rows) * dtype.itemsize if rows * columns * count else 0
    assert stride >= 0 and within_an_array(address, span), f"cuBLAS: {name} reaches beyond its array"
    flat = np.frombuffer((ctypes.c_char * span).from_address(address), dtype)
    strides = (stride * dtype.itemsize, dtype.itemsize, ld * dtype.itemsize)
    return np.lib.stride_tricks.as_strided(flat, (count, rows, columns), strides)


def within_an_array(address, span):
    return any(start <= address and address + span <= start + len(memory) for start, memory in ALLOCATED.items())


def is_written_once(x):
    """Whether no two entries of `x` share memory, as each stride reaches beyond all that lies at smaller ones."""
    reach = x.itemsize
    for stride, side in sorted(zip(x.strides, x.shape)):
        if side > 1 and stride < reach:
            return False
        reach += stride * (side - 1)
    return True


def scalar(address):
    return ctypes.c_float.from_address(address).value


def tf32(x):
    """Round float32 to 10 bits of mantissa, as tensor cores read it."""
    bits = np.ascontiguousarray(x).view("uint32")
    return ((bits + np.uint32(0xFFF) + (bits >> np.uint32(13) & np.uint32(1))) & np.uint32(0xFFFFE000)).view("float32")


def get_handle():
    MODE[HANDLE] = 0  # CuPy's own products set it back to what it is at first, at any time before
    return HANDLE


def create():
    handle = next(NUMBERS)
    MODE[handle] = 0
    return handle


def destroy(handle):
    del MODE[handle]


def setMathMode(handle, mode):
    assert handle in MODE and mode in (0, NO_REDUCED_SUMS), f"cuBLAS: math mode {mode}"
    MODE[handle] = mode


def gemmStridedBatchedEx(
    handle, transa, transb, m, n, k, alpha, a, a_type, lda, a_stride, b, b_type, ldb, b_stride, beta, c, c_type, ldc,
    c_stride, count, compute, algo,
):  # fmt: skip
    """Cᵢ ← alpha op(Aᵢ) op(Bᵢ) + beta Cᵢ, accumulated in float32."""
    assert handle in MODE and algo == DEFAULT
    assert transa in (0, 1) and transb in (0, 1), f"cuBLAS: operations {transa} and {transb}"
    assert count <= 65535, f"{count} batches are more than every version of cuBLAS takes"
    assert compute in (COMPUTE_32F, COMPUTE_TF32), f"cuBLAS: compute type {compute}"
    assert a_type == b_type and (a_type, c_type) in TYPES, f"cuBLAS: types {a_type}, {b_type} and {c_type}"
    assert compute == COMPUTE_32F or a_type == c_type == R_32F, "TF32 is for float32"
    assert a_type == R_32F or MODE[handle] == NO_REDUCED_SUMS, "cuBLAS may add up parts of a sum in the type of C"
    assert min(m, n, k, count) > 0, "cuBLAS may leave a product over nothing undone"
    a = matrices("A", a, a_type, *((k, m) if transa else (m, k)), lda, a_stride, count)
    b = matrices("B", b, b_type, *((n, k) if transb else (k, n)), ldb, b_stride, count)
    c = matrices("C", c, c_type, m, n, ldc, c_stride, count)
    assert is_written_once(c), "cuBLAS: C overlaps itself"
    assert not np.shares_memory(c, a) and not np.shares_memory(c, b), "cuBLAS: C overlaps A or B"
    alpha, beta = np.float32(scalar(alpha)), np.float32(scalar(beta))

    def work():
        c[...] = result_of(transa, transb, alpha, a, b, beta, c, compute == COMPUTE_TF32)

    launched(work)


def result_of(transa, transb, alpha, a, b, beta, c, rounded):
    a, b = (tf32(x) if rounded else x.astype("float32") for x in (a, b))
    # OpenBLAS also computes with the memory after a small matrix, and discards it: that may be NaN.
    with np.errstate(invalid="ignore"):
        result = alpha * np.matmul(a.mT if transa else a, b.mT if transb else b)
    if beta:
        result += beta * c.astype("float32")
    return result.astype(c.dtype)


def launched(work):
    """The stand-in for CuPy notes here what is captured."""
    work()


def gemmEx(handle, transa, transb, m, n, k, alpha, a, a_type, lda, b, b_type, ldb, beta, c, c_type, ldc, compute, algo):
    gemmStridedBatchedEx(
        handle, transa, transb, m, n, k, alpha, a, a_type, lda, 0, b, b_type, ldb, 0, beta, c, c_type, ldc, 0, 1,
        compute, algo,
    )  # fmt: skip


# -- the shared library -----------------------------------------------------------------------------------------------

JUMP = r"""
extern "C" { void *to_NAME; }
asm(".globl NAME\n NAME: mov to_NAME@GOTPCREL(%rip), %rax\n jmp *(%rax)");
"""
ANSWERS = {}  # {a function's name in C: what answers it}
STREAMS, WORKSPACES = {}, {}  # of handles


def in_c(name):
    """Have a function answer calls from C by this name: it returns 0, or after an error, which is printed, the status
    CUBLAS_STATUS_INVALID_VALUE."""

    def add(function):
        def call(*arguments):
            try:
                function(*arguments)
            except Exception:
                traceback.print_exc()
                return 7
            return 0

        ANSWERS[name] = call
        return function

    return add


@in_c("cublasGemmStridedBatchedEx")
def product_in_c(handle, *arguments, function=gemmStridedBatchedEx):
    assert handle in WORKSPACES, "cuBLAS would allocate memory in what is captured"
    assert STREAMS[handle] == current_stream().ptr, "cuBLAS would take another stream"
    function(handle, *arguments)


in_c("cublasGemmEx")(partial(product_in_c, function=gemmEx))


def current_stream():
    """The stand-in for CuPy says here which stream is current."""


@in_c("cublasSetStream_v2")
def set_stream(handle, stream):
    assert current_stream().captured is None, "cuBLAS has no stream to be set in what is captured"
    STREAMS[handle] = stream or 0
    WORKSPACES.pop(handle, None)


@in_c("cublasSetWorkspace_v2")
def set_workspace(handle, address, size):
    assert address % 256 == 0 and within_an_array(address, size), "cuBLAS: a workspace that isn't there"
    WORKSPACES[handle] = address, size


@cache
def library():
    """The path of a library with cuBLAS's functions, which are those above."""
    from tinyvit.kernels.cuda.cublas import TYPES as types

    built = emulator.load("".join(JUMP.replace("NAME", name) for name in ANSWERS))
    built.kept = [CFUNCTYPE(c_int, *types[name])(answer) for name, answer in ANSWERS.items()]
    for name, answer in zip(ANSWERS, built.kept):
        c_void_p.in_dll(built, f"to_{name}").value = ctypes.cast(answer, c_void_p).value
    return built._name
