import ctypes
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numbers_of import DTYPE, EPSILON, numbers, to

from tinyvit import backend
from tinyvit.kernels.cuda import products
from tinyvit.kernels.cuda.cublas import TYPES, CublasError, functions
from tinyvit.kernels.cuda.products import multiply, multiply_batches

# Layouts of a matrix: row-major or column-major, with gaps, and inside a larger array.
LAYOUTS = ("rows", "padded rows", "columns", "padded columns")


def laid_out(cupy, x, dtype, layout, batch_order=None, gap=3):
    """`x` (..., m, n) on the device in the given layout, with the leading axes in the order `batch_order`."""
    lead = x.ndim - 2
    order = [*(batch_order or range(lead)), *((lead, lead + 1) if "rows" in layout else (lead + 1, lead))]
    shape = [x.shape[axis] for axis in order]
    if "padded" in layout:
        shape[-1] += gap
    memory = cupy.asarray(np.full(shape, 7.0).astype(DTYPE[dtype]))
    view = memory[..., : x.shape[order[-1]]].transpose(*np.argsort(order).tolist())
    view[...] = to(cupy, x, dtype)
    return view


@st.composite
def cases(draw, lead):
    sides = st.integers(0, 9)
    batch = tuple(draw(st.integers(0, 4)) for _ in range(lead))
    m, n, k = draw(sides), draw(sides), draw(sides)
    layouts = [draw(st.sampled_from(LAYOUTS)) for _ in range(3)]
    orders = [draw(st.permutations(range(lead))) for _ in range(3)]
    alpha, beta = draw(st.sampled_from((1.0, 0.25, -2.0))), draw(st.sampled_from((0.0, 1.0, 0.5)))
    return batch, (m, n, k), layouts, orders, alpha, beta, draw(st.integers(0, 99))


def check(cupy, case, dtype, out_dtype, function, gap=3):
    batch, (m, n, k), layouts, orders, alpha, beta, seed = case
    a, b = numbers(*batch, m, k, dtype=dtype, seed=seed), numbers(*batch, k, n, dtype=dtype, seed=seed + 1)
    before = numbers(*batch, m, n, dtype=out_dtype, seed=seed + 2)
    arrays = [
        laid_out(cupy, x, kind, layout, order, gap)
        for x, kind, layout, order in zip((a, b, before), (dtype, dtype, out_dtype), layouts, orders)
    ]
    expected = alpha * (a @ b) + beta * before
    assert function(*arrays, alpha=alpha, beta=beta) is arrays[2]
    most = abs(alpha) * (abs(a) @ abs(b)) + abs(beta * before)
    normal = 2.0**-14 if out_dtype == "float16" else 0  # smaller numbers have fewer digits
    bound = EPSILON[out_dtype] * np.maximum(abs(expected), normal) + (k + 2) * EPSILON["float32"] * most
    assert (abs(arrays[2].get().astype("float64") - expected) <= bound).all()
    around = arrays[2].base
    if "padded" in layouts[2] and around is not None:
        assert (around.get()[..., -gap:] == 7).all(), "something was written into the gap"


KINDS = [("float32", "float32"), *((low, out) for low in ("bfloat16", "float16") for out in (low, "float32"))]


@pytest.mark.parametrize("dtype, out_dtype", KINDS)
@given(case=st.integers(0, 2).flatmap(cases))
def test_products_are_numpys_in_every_memory_layout(cupy, dtype, out_dtype, case):
    check(cupy, case, dtype, out_dtype, multiply_batches if case[0] else multiply)


@pytest.mark.cuda
@pytest.mark.parametrize("name", TYPES)
def test_the_functions_of_cublas_are_called_with_the_types_that_they_are_declared_with(name):
    import nvidia.cublas

    (header,) = (file for path in nvidia.cublas.__path__ for file in Path(path).glob("include/cublas_api.h"))
    arguments = re.search(rf"CUBLASWINAPI {name}\(([^)]*)\)", header.read_text())[1].split(",")
    pointer = re.compile(r"\*|cublasHandle_t|cudaStream_t")
    sizes = {"long long": ctypes.c_longlong, "size_t": ctypes.c_size_t}
    assert TYPES[name] == [
        ctypes.c_void_p if pointer.search(argument)
        else next((kind for text, kind in sizes.items() if text in argument), ctypes.c_int)  # enumerations, too
        for argument in arguments
    ]  # fmt: skip


def test_an_error_of_cublas_is_named(cupy):
    gemm = functions(cupy.cuda.cublas.__file__).gemmEx
    with pytest.raises(CublasError, match=r"^cublasGemmEx failed: CUBLAS_STATUS_INVALID_VALUE \(7\)$"):
        gemm(cupy.cuda.get_cublas_handle(), 0, 0, -1, 1, 1, 0, 0, 0, 1, 0, 0, 1, 0, 0, 0, 1, 68, -1)


def test_batches_with_one_common_stride_go_in_one_call_unless_they_are_too_many(cupy, monkeypatch):
    counts, original = [], cupy.cuda.cublas.gemmStridedBatchedEx
    monkeypatch.setattr(
        cupy.cuda.cublas, "gemmStridedBatchedEx", lambda *args: (counts.append(args[-3]), original(*args))[1]
    )
    a, b = numbers(5, 2, 3, 4), numbers(5, 2, 4, 3, seed=1)
    for most in (65535, 4):
        monkeypatch.setattr(products, "MAX_BATCHES", most)
        products.plan_of.cache_clear()
        out = multiply_batches(to(cupy, a), to(cupy, b), cupy.empty((5, 2, 3, 3), "float32"))
        np.testing.assert_allclose(out.get(), a @ b, atol=1e-5)
    products.plan_of.cache_clear()
    assert counts == [10, 4, 4, 2]


def test_tf32_rounds_float32_products_only_where_it_is_asked_for(cupy):
    a, b = numbers(64, 64), numbers(64, 64, seed=1)

    def error(dtype="float32"):
        out = multiply(to(cupy, a, dtype), to(cupy, b, dtype), cupy.empty((64, 64), "float32"))
        wanted = to(cupy, a, dtype).get().astype("float64") @ to(cupy, b, dtype).get().astype("float64")
        return abs(out.get() - wanted).max()

    assert error() < 1e-5
    with backend.set_scope(products="tf32"):
        assert 1e-4 < error() < 3e-2
        assert error("bfloat16") < 1e-4
    assert error() < 1e-5


@pytest.mark.parametrize("function, batch", [(multiply, ()), (multiply_batches, (3,))])
def test_parts_of_a_sum_may_be_larger_than_what_the_result_can_hold(cupy, function, batch):
    k = 1 << 16
    a, b = cupy.ones((*batch, 8, k), "float16"), cupy.ones((*batch, k, 8), "float16")
    b[..., : k // 2, :] = -4
    b[..., k // 2 :, :] = 4  # each half adds up to 131,072, twice what float16 holds
    out = function(a, b, cupy.ones((*batch, 8, 8), "float16"), beta=1.0)
    np.testing.assert_array_equal(out.get(), 1)


def test_operands_that_cublas_cannot_take_are_refused_and_nothing_is_written(cupy):
    def zeros(*shape, dtype="float32"):
        return cupy.asarray(np.zeros(shape, DTYPE.get(dtype, dtype)))

    square, batch = zeros(4, 4), zeros(3, 4, 4)
    for reason, *arrays in (
        ("two axes", batch, square, square),
        ("one or two axes before", batch, zeros(2, 4, 4), batch),
        (r"don't match; got float32 \(4, 3\) with strides", zeros(4, 3), square, square),
        ("two of float32, bfloat16 or float16", square, zeros(4, 4, dtype="bfloat16"), square),
        ("two of float32, bfloat16 or float16", *(zeros(4, 4, dtype=d) for d in ("float16", "float16", "bfloat16"))),
        ("are contiguous", zeros(8, 8)[::2, ::2], square, square),
        ("are contiguous", square[::-1], square, square),
        ("are contiguous", square, square, zeros(8, 8)[::2, ::2]),
        ("no less than 0", batch[::-1], batch, batch),
        ("broadcast array", batch, batch, cupy.broadcast_to(square, (3, 4, 4))),
    ):
        function = multiply if reason == "two axes" or arrays[0].ndim == 2 else multiply_batches
        with pytest.raises(ValueError, match=reason):
            function(*arrays)
        assert not arrays[2].get().any()
