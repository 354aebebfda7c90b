"""Matrix products by cuBLAS, on arrays as they lie in memory: no operand is copied, and none is written but the result.

`cupy.matmul` copies transposed operands of three and more dimensions, leaves TF32 alone and has no bfloat16 there.
cuBLAS itself takes any matrix whose rows or columns lie contiguously, at any distance from each other, and many of them
at once where they lie at equal distances. It adds to what is there
already (`beta`), so that a gradient goes straight into its buffer, and it accumulates in float32 whatever the arrays
hold: also where it cuts a long sum into parts, which it would add up in the result's type unless told otherwise
(partial sums in float16 overflow where the whole doesn't).

cuBLAS writes a matrix column by column. One that lies row by row is to cuBLAS its own transpose, so instead of C = A B
it computes Cᵀ = Bᵀ Aᵀ.
"""

from ctypes import addressof, c_float
from functools import lru_cache
from math import prod
from typing import NamedTuple

import numpy as np

from tinyvit.arrays import array_module
from tinyvit.backend import scope
from tinyvit.kernels.cuda.cublas import products_of_stream
from tinyvit.kernels.cuda.source import run

AS_IT_IS, TRANSPOSED = 0, 1  # CUBLAS_OP_N, CUBLAS_OP_T
WHOLE_SUMS = 16              # CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION
LARGEST_INT = 2**31 - 1      # sizes and leading dimensions are C's ints
MAX_BATCHES = 65535         # batches: as many as a grid of blocks has in its third direction, on any version of cuBLAS


def multiply(a, b, out, alpha=1.0, beta=0.0):
    """out ← alpha · a b + beta · out for matrices a (m, k), b (k, n) and out (m, n); returns `out`.

    The rows or the columns of each of them lie contiguously, at any distance of at least their length: views such as
    `x.T` or `x[:, :100]` will do. `a` and `b` are both float32, bfloat16 or float16; `out` has their dtype or float32
    and overlaps neither. With beta = 0 it isn't read. Float32 products are rounded as `backend.scope().products` says.
    Raises ValueError for everything else, and changes nothing then.
    """
    if not a.ndim == b.ndim == out.ndim == 2:
        refuse("expected matrices with two axes", *map(layout, (a, b, out)))
    return product("product", a, b, out, alpha, beta)


def multiply_batches(a, b, out, alpha=1.0, beta=0.0):
    """`multiply` for every entry of one or two leading axes: a (B, H, m, k), b (B, H, k, n), out (B, H, m, n).

    The leading axes may have any strides; those of `a` and `b` may be 0, as `broadcast_to` makes them. Where the two
    don't lie in memory like a single one, there is one call of cuBLAS for each entry of the shorter.
    """
    if not a.ndim == b.ndim == out.ndim or not 3 <= out.ndim <= 4 or not a.shape[:-2] == b.shape[:-2] == out.shape[:-2]:
        refuse("expected the same one or two axes before each matrix", *map(layout, (a, b, out)))
    return product("products", a, b, out, alpha, beta)


class Layout(NamedTuple):
    """All of an array but its numbers: it decides how cuBLAS is called."""

    shape: tuple
    strides: tuple
    dtype: np.dtype

    @property
    def mT(self):
        (*shape, m, n), (*strides, far, near) = self.shape, self.strides
        return Layout((*shape, n, m), (*strides, near, far), self.dtype)

    def __str__(self):
        return f"{self.dtype} {self.shape} with strides {self.strides}"


class Plan(NamedTuple):
    """How cuBLAS is to be called for three layouts. `first` and `second` are what it takes for A and B."""

    swapped: bool  # whether first is b and second is a, and not the other way round
    shape: tuple   # the operations on first and second, rows and columns of the result, and the length of the sums
    first: tuple   # type and leading dimension, and the stride from batch to batch where there are batches
    second: tuple  # likewise
    out: tuple     # likewise
    float32: bool  # whether the operands are; bfloat16 or float16 otherwise
    calls: list    # for each call: the offsets of first, second and out in their arrays, and the batches


def product(name, a, b, out, alpha, beta):
    cupy, parts = array_module(out), (part for x in (a, b, out) for part in (x.shape, x.strides, x.dtype))
    plan = plan_of(cupy, *parts)
    if plan is None:
        return scale(out, beta)
    arrays = (b, a, out) if plan.swapped else (a, b, out)
    run(name, (a, b, out), multiply_as_planned, cupy, plan, arrays, alpha, beta)
    return out


def multiply_as_planned(cupy, plan, arrays, alpha, beta):
    _, shape, (type1, *from1), (type2, *from2), to, float32, calls = plan
    handle, gemm = products_of_stream(cupy)
    cublas = cupy.cuda.cublas
    if not float32:  # each time: a handle is a thread's and a device's, and CuPy's own products set it back
        cublas.setMathMode(handle, WHOLE_SUMS)
    tf32 = float32 and scope().products == "tf32"
    how = cublas.CUBLAS_COMPUTE_32F_FAST_TF32 if tf32 else cublas.CUBLAS_COMPUTE_32F, cublas.CUBLAS_GEMM_DEFAULT
    alpha, beta = scalar(alpha), scalar(beta)  # held until cuBLAS has read them
    at_alpha, at_beta = addressof(alpha), addressof(beta)
    at1, at2, at_out = (x.data.ptr for x in arrays)
    if arrays[0].ndim == 2:
        gemm.gemmEx(handle, *shape, at_alpha, at1, type1, *from1, at2, type2, *from2, at_beta, at_out, *to, *how)
        return
    for by1, by2, by_out, count in calls:
        gemm.gemmStridedBatchedEx(
            handle, *shape, at_alpha, at1 + by1, type1, *from1, at2 + by2, type2, *from2, at_beta,
            at_out + by_out, *to, count, *how,
        )  # fmt: skip


def layout(x):
    return Layout(x.shape, x.strides, x.dtype)


@lru_cache(maxsize=10000)  # a model has a few dozen, of some hundred bytes; images of ever new sizes have more and more
def plan_of(cupy, *parts):
    """The plan for three layouts, or None where nothing is to be multiplied; raises ValueError as `multiply` says.

    parts   shape, strides and dtype of a, of b, and of the result
    """
    a, b, out = (Layout(*parts[i : i + 3]) for i in (0, 3, 6))
    (*_, m, k), n = a.shape, b.shape[-1]
    if b.shape[-2] != k or out.shape[-2:] != (m, n):
        refuse("the shapes don't match", a, b, out)
    type_in, type_out = types_of(cupy, a, b, out)
    if 0 in out.shape or not k:
        return None
    (op_a, ld_a), (op_b, ld_b), (op_out, ld_out) = map(operand, (a, b, out))
    if max(m, n, k, ld_a, ld_b, ld_out) > LARGEST_INT:
        refuse(f"cuBLAS counts to {LARGEST_INT}", a, b, out)
    if op_out == TRANSPOSED:  # the result lies column by column, as cuBLAS writes it; so it computes A B itself
        swapped, arrays, leading = False, (a, b, out), (ld_a, ld_b, ld_out)
        shape = 1 - op_a, 1 - op_b, m, n, k
    else:
        swapped, arrays, leading = True, (b, a, out), (ld_b, ld_a, ld_out)
        shape = op_b, op_a, n, m, k
    loops, count, of_loop, of_batch = batches(arrays)
    calls = [
        (*(i * loop + start * batch for loop, batch in zip(of_loop, of_batch)), min(MAX_BATCHES, count - start))
        for i in range(loops)
        for start in range(0, count, MAX_BATCHES)
    ]
    parts = [
        (code, ld, stride // x.dtype.itemsize)[: 2 if len(x.shape) == 2 else 3]
        for code, ld, stride, x in zip((type_in, type_in, type_out), leading, of_batch, arrays)
    ]
    return Plan(swapped, shape, *parts, str(a.dtype) == "float32", calls)


def types_of(cupy, a, b, out):
    """cuBLAS's types for operands and result; raises ValueError for combinations that it doesn't support."""
    runtime = cupy.cuda.runtime
    codes = {"float32": runtime.CUDA_R_32F, "bfloat16": runtime.CUDA_R_16BF, "float16": runtime.CUDA_R_16F}
    of_a, of_b, of_out = (str(x.dtype) for x in (a, b, out))
    if of_a != of_b or of_a not in codes or of_out not in (of_a, "float32"):
        refuse("expected two of float32, bfloat16 or float16, and a result in the same dtype or float32", a, b, out)
    return codes[of_a], codes[of_out]


def operand(x):
    """Whether a matrix lies row by row (AS_IT_IS) or column by column (TRANSPOSED), and how many numbers apart."""
    for op, turned in ((AS_IT_IS, x), (TRANSPOSED, x.mT)):
        (count, length), (far, near), size = turned.shape[-2:], turned.strides[-2:], x.dtype.itemsize
        if length == 1 or near == size:
            if count == 1:
                return op, max(1, length)
            if far >= length * size and far % size == 0:
                return op, far // size
    refuse("neither rows nor columns are contiguous, one after the other; make a copy by ascontiguousarray", x)


def batches(layouts):
    """How to loop over the batches: loops, batches in each, and the arrays' strides of both, in bytes.

    One loop where all arrays allow it. Raises ValueError for strides that cuBLAS doesn't support.
    """
    shape = layouts[-1].shape[:-2]
    for x in layouts:
        if not batches_fit(x):
            refuse("expected strides of no less than 0 and of whole numbers", x)
    if any(side > 1 and stride == 0 for side, stride in zip(shape, layouts[-1].strides)):
        refuse("the result can't be a broadcast array", layouts[-1])
    nothing = (0,) * len(layouts)
    if len(shape) < 2:
        return 1, prod(shape), nothing, tuple(x.strides[0] if shape else 0 for x in layouts)
    (outer, inner), (far, near) = shape, zip(*(x.strides[:2] for x in layouts))
    if inner == 1:
        return 1, outer, nothing, far
    if outer == 1 or all(f == inner * n for f, n in zip(far, near)):
        return 1, outer * inner, nothing, near
    return (outer, inner, far, near) if outer <= inner else (inner, outer, near, far)


def can_multiply(x):
    """Whether `multiply` and `multiply_batches` take an array as an operand, as far as its strides are concerned."""
    if x.flags.c_contiguous:
        return True
    try:
        operand(layout(x))
    except ValueError:
        return False
    return batches_fit(x)


def batches_fit(x):
    """Whether cuBLAS supports the strides of the leading axes."""
    return all(stride >= 0 and stride % x.dtype.itemsize == 0 for stride in x.strides[:-2])


def scale(out, beta):
    """beta · out, the result of a product over an empty axis."""
    if beta == 0:
        out[...] = 0
    elif beta != 1:
        out *= beta
    return out


@lru_cache(maxsize=1024)
def scalar(value):
    """A float in memory of its own, which cuBLAS reads."""
    return c_float(value)


def refuse(reason, *layouts):
    raise ValueError(f"product: {reason}; got {', '.join(map(str, layouts))}")
