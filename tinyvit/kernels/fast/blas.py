"""Matrix products inside compiled functions, on parts of larger arrays: BLAS's sgemm as SciPy provides it."""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import get_cython_function_address, intrinsic

SGEMM = get_cython_function_address("scipy.linalg.cython_blas", "sgemm")  # an argument, as each process has its own
AS_IT_IS, TRANSPOSED = ord("N"), ord("T")


@intrinsic
def gemm(typing, address, how_a, how_b, rows, columns, inner, alpha, a, lda, b, ldb, beta, c, ldc):
    """C ← α A B + β C for row-major float32 matrices at the addresses a, b and c; A is (rows, inner).

    address    SGEMM
    how_a, …   AS_IT_IS, or TRANSPOSED if the transposed matrix is what lies in memory
    lda, …     numbers from one row in memory to the next
    """

    def code(context, builder, signature, values):
        by_name = dict(zip(NAMES, values))

        def stored(name, kind):
            value = by_name[name]
            return builder.bitcast(cgutils.alloca_once_value(builder, builder.trunc(value, kind)), POINTER)

        def number(name):
            return builder.bitcast(cgutils.alloca_once_value(builder, by_name[name]), POINTER)

        def matrix(name):
            return builder.inttoptr(by_name[name], POINTER)

        letter, count = ir.IntType(8), ir.IntType(32)
        # BLAS counts by columns, in which every matrix here is the transposed one: Cᵀ ← α Bᵀ Aᵀ + β Cᵀ.
        arguments = [
            stored("how_b", letter), stored("how_a", letter),
            stored("columns", count), stored("rows", count), stored("inner", count),
            number("alpha"), matrix("b"), stored("ldb", count), matrix("a"), stored("lda", count),
            number("beta"), matrix("c"), stored("ldc", count),
        ]  # fmt: skip
        function = ir.FunctionType(ir.VoidType(), [POINTER] * len(arguments))
        builder.call(builder.inttoptr(by_name["address"], function.as_pointer()), arguments)
        return context.get_dummy_value()

    return SIGNATURE, code


NAMES = (
    "address", "how_a", "how_b", "rows", "columns", "inner", "alpha", "a", "lda", "b", "ldb", "beta", "c", "ldc",
)  # fmt: skip
SIGNATURE = types.void(*[types.float32 if name in ("alpha", "beta") else types.int64 for name in NAMES])
POINTER = ir.IntType(8).as_pointer()
