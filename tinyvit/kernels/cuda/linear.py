"""`linear` by cuBLAS: no operand is copied, and a weight's gradient goes straight into its float32 buffer.

The bias is added to the product in a pass of its own, which reads and writes all of y: 2·rows·out numbers through
memory, beside the rows·in + rows·out + in·out of the product. cuBLASLt would add it in the product, but CuPy lacks
it; to write the bias into every row first and let cuBLAS add the product to it (beta = 1) moves as much. In low
precision y is thereby rounded twice, before and after the bias.
"""

from math import prod

from tinyvit.arrays import array_module
from tinyvit.functional.linear import LinearCache, check_shapes, linear, linear_backward
from tinyvit.kernels.cuda.column_sums import add_column_sums
from tinyvit.kernels.cuda.products import can_multiply, multiply
from tinyvit.kernels.cuda.source import KINDS, PACKED, Source, blocks, contiguous, pack_of, type_of
from tinyvit.kernels.linear import linear_backward_wanted

SOURCE = Source("linear.cu", PACKED)
BLOCK = 256
ROWS = 8  # that a thread adds its part of the bias to


def linear_cuda(x, weight, bias=None):
    check_shapes(x, weight, bias)
    if weight.dtype != x.dtype or (bias is not None and bias.dtype != "float32"):
        if x.dtype == "float32":
            return linear.reference(x, weight, bias)
        got = weight.dtype if bias is None else f"{weight.dtype} and {bias.dtype}"
        raise ValueError(f"linear: expected a weight in {x.dtype}, like x, and a bias in float32, got {got}")
    rows = as_operand(x)
    y = array_module(x).empty((len(rows), len(weight)), x.dtype)
    multiply(rows, as_operand(weight).T, y)
    if bias is not None:
        add_bias(y, contiguous(bias), y)
    return y.reshape(*x.shape[:-1], len(weight)), LinearCache(x, weight, bias is not None)


def linear_backward_cuda(dy, cache, into, inputs=True):
    """As `functional.linear_backward`; a gradient that isn't wanted (False in `into`, or without `inputs` that of x)
    costs nothing."""
    x, weight, has_bias = cache
    if not dy.dtype == x.dtype == weight.dtype:
        if dy.dtype == "float32":
            return linear_backward_wanted(dy, cache, into, inputs)
        raise ValueError(f"linear_backward: expected dy in {x.dtype}, like x, got {dy.dtype}")
    dy_rows, dx = as_operand(dy), None
    if inputs:
        dx = array_module(dy).empty((len(dy_rows), x.shape[-1]), x.dtype)
        dx = multiply(dy_rows, as_operand(weight), dx).reshape(x.shape)
    dweight = add_product(dy_rows.T, as_operand(x), into[0])
    if not has_bias:
        return dx, dweight
    return dx, dweight, None if into[1] is False else add_column_sums(contiguous(dy_rows), into[1])


def add_product(a, b, into):
    """a b added to the array `into` if cuBLAS can write there, else in a new one; None for False."""
    if into is False:
        return None
    if into is not None and into.dtype in ("float32", a.dtype) and can_multiply(into):
        return multiply(a, b, into, beta=1.0)
    return multiply(a, b, array_module(a).empty((a.shape[0], b.shape[1]), "float32"))


def as_operand(x):
    """(..., D) as a matrix (rows, D), copied only where cuBLAS couldn't read it."""
    rows = x if x.ndim == 2 else x.reshape(prod(x.shape[:-1]), x.shape[-1])
    return rows if can_multiply(rows) else contiguous(rows)


def add_bias(x, bias, y):
    """y = x + bias, for x and y (rows, D), contiguous, and bias (D,) in float32."""
    rows, D = y.shape
    pack = pack_of(D, x, y)
    packs_of_row = D // pack
    stride = packs_of_row * blocks(rows, ROWS)
    SOURCE.launch(
        "linear_add_bias", blocks(stride, BLOCK), BLOCK, x, bias, y, rows * packs_of_row, packs_of_row, stride,
        T=type_of(y), PACK=pack,
    )  # fmt: skip


for kind in KINDS:
    linear.register(kind, linear_cuda)
    linear_backward.register(kind, linear_backward_cuda)
