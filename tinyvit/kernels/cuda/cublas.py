"""cuBLAS on a stream that is captured into a CUDA graph.

CuPy tells cuBLAS before each product which stream is current, and refuses to do so while that is captured. A stream
that has a `Handle` here is told once; its products are then called without CuPy.
"""

import ctypes
import weakref
from ctypes import c_int, c_longlong, c_void_p

HANDLES = weakref.WeakValueDictionary()  # stream.ptr -> Handle
HOPPER = 90  # compute capability
MIB = 1 << 20

SHAPE = [c_void_p, *[c_int] * 5, c_void_p]  # handle, operations, m, n, k, alpha
HOW = [c_int, c_int]                        # the type that is computed in, the algorithm


class Handle:
    """A handle of cuBLAS for one stream, with the products that `cupy.cuda.cublas` has under the same names.

    Its workspace is as large as the one that cuBLAS has on this GPU by itself, so that it chooses the same algorithms.
    """

    def __init__(self, cupy, stream):
        cublas = cupy.cuda.cublas
        library = ctypes.CDLL(cublas.__file__)  # looks functions up in the cuBLAS that CuPy is linked with, too
        self.gemmEx = function(
            library, "cublasGemmEx", *SHAPE, *[c_void_p, c_int, c_int] * 2, c_void_p, c_void_p, c_int, c_int, *HOW
        )
        self.gemmStridedBatchedEx = function(
            library, "cublasGemmStridedBatchedEx", *SHAPE, *[c_void_p, c_int, c_int, c_longlong] * 2, c_void_p,
            c_void_p, c_int, c_int, c_longlong, c_int, *HOW,
        )  # fmt: skip
        self.sgemmBatched = function(
            library, "cublasSgemmBatched", *SHAPE, *[c_void_p, c_int] * 2, c_void_p, c_void_p, c_int, c_int
        )
        self.stream, self.handle = stream, cublas.create()
        weakref.finalize(self, cublas.destroy, self.handle).atexit = False
        size = (32 if int(cupy.cuda.Device().compute_capability) >= HOPPER else 4) * MIB
        self.workspace = cupy.empty(size, "uint8")
        function(library, "cublasSetStream_v2", c_void_p, c_void_p)(self.handle, stream.ptr)
        # After the stream: setting that resets the workspace.
        function(library, "cublasSetWorkspace_v2", c_void_p, c_void_p, ctypes.c_size_t)(
            self.handle, self.workspace.data.ptr, size
        )
        HANDLES[stream.ptr] = self


def function(library, name, *types):
    """A function of cuBLAS with parameters of these types; it raises RuntimeError for a status that isn't success."""
    call = library[name]
    call.argtypes, call.restype = types, c_int

    def checked(*arguments):
        status = call(*arguments)
        if status:
            raise RuntimeError(f"{name} failed with the status {status} of cuBLAS")

    return checked


def products_of_stream(cupy):
    """(handle, module) for products on the current stream: `module.gemmEx(handle, …)`."""
    own = HANDLES.get(cupy.cuda.get_current_stream().ptr) if HANDLES else None
    return (cupy.cuda.get_cublas_handle(), cupy.cuda.cublas) if own is None else (own.handle, own)
