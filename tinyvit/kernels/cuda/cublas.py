"""cuBLAS without CuPy, for products on a stream that is captured.

CuPy tells cuBLAS before each product which stream is current, and refuses to do so while that is captured into a CUDA
graph: a stream that has a `Handle` here is told once.
"""

import ctypes
import weakref
from ctypes import c_int, c_longlong, c_void_p
from functools import cache

HANDLES = weakref.WeakValueDictionary()  # stream.ptr -> Handle
STATUSES = {
    number: f"CUBLAS_STATUS_{name}"
    for number, name in {
        1: "NOT_INITIALIZED", 3: "ALLOC_FAILED", 7: "INVALID_VALUE", 8: "ARCH_MISMATCH", 11: "MAPPING_ERROR",
        13: "EXECUTION_FAILED", 14: "INTERNAL_ERROR", 15: "NOT_SUPPORTED", 16: "LICENSE_ERROR",
    }.items()
}  # fmt: skip
HOPPER = 90  # compute capability
MIB = 1 << 20

SHAPE_ARGS = [c_void_p, *[c_int] * 5, c_void_p]  # handle, operations, m, n, k, alpha
COMPUTE_ARGS = [c_int, c_int]                    # the type that is computed in, the algorithm
MATRIX, MATRICES = [c_void_p, c_int, c_int], [c_void_p, c_int, c_int, c_longlong]
TYPES = {  # of the arguments of each function
    "cublasGemmEx": [*SHAPE_ARGS, *MATRIX, *MATRIX, c_void_p, *MATRIX, *COMPUTE_ARGS],
    "cublasGemmStridedBatchedEx": [*SHAPE_ARGS, *MATRICES, *MATRICES, c_void_p, *MATRICES, c_int, *COMPUTE_ARGS],
    "cublasSetStream_v2": [c_void_p, c_void_p],
    "cublasSetWorkspace_v2": [c_void_p, c_void_p, ctypes.c_size_t],
}


class CublasError(RuntimeError):
    """A function of cuBLAS failed; the message names it and its status."""


class Functions:
    """Functions of cuBLAS, called by ctypes; products have the names that CuPy gives them."""

    def __init__(self, path):
        self.library = ctypes.CDLL(path)  # it looks functions up in the cuBLAS that it is linked with, too
        self.gemmEx = self.function("cublasGemmEx")
        self.gemmStridedBatchedEx = self.function("cublasGemmStridedBatchedEx")
        self.set_stream = self.function("cublasSetStream_v2")
        self.set_workspace = self.function("cublasSetWorkspace_v2")

    def function(self, name):
        """A function that raises CublasError for a status that isn't success."""
        call = self.library[name]
        call.argtypes, call.restype = TYPES[name], c_int

        def checked(*arguments):
            status = call(*arguments)
            if status:
                raise CublasError(f"{name} failed: {STATUSES.get(status, 'an unknown status')} ({status})")

        return checked


@cache
def functions(path):
    """The `Functions` of a shared library, looked up once."""
    return Functions(path)


class Handle:
    """A handle of cuBLAS for one stream.

    Its workspace is as large as the one that cuBLAS has on this GPU by itself, so that it chooses the same algorithms.
    """

    def __init__(self, cupy, stream):
        cublas = cupy.cuda.cublas
        library = functions(cublas.__file__)
        self.stream, self.handle = stream, cublas.create()
        weakref.finalize(self, cublas.destroy, self.handle).atexit = False
        size = (32 if int(cupy.cuda.Device().compute_capability) >= HOPPER else 4) * MIB
        self.workspace = cupy.empty(size, "uint8")
        library.set_stream(self.handle, stream.ptr)
        library.set_workspace(self.handle, self.workspace.data.ptr, size)  # after the stream, which resets it
        HANDLES[stream.ptr] = self


def products_of_stream(cupy):
    """(handle, functions) for products on the current stream: `functions.gemmEx(handle, …)`."""
    told = HANDLES.get(cupy.cuda.get_current_stream().ptr) if HANDLES else None
    if told is None:
        return cupy.cuda.get_cublas_handle(), cupy.cuda.cublas
    return told.handle, functions(cupy.cuda.cublas.__file__)
