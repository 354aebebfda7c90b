import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numbers_of import DTYPE, EPSILON, numbers, to

from tinyvit import backend
from tinyvit.kernels.cuda import products
from tinyvit.kernels.cuda.cublas import CublasError, Handle, functions
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
@given(case=cases(lead=0))
def test_products_of_matrices_are_numpys_in_every_memory_layout(cupy, dtype, out_dtype, case):
    check(cupy, case, dtype, out_dtype, multiply)


@pytest.mark.parametrize("dtype, out_dtype", KINDS)
@given(case=st.integers(1, 2).flatmap(cases))
def test_products_of_batches_are_numpys_in_every_memory_layout(cupy, dtype, out_dtype, case):
    check(cupy, case, dtype, out_dtype, multiply_batches)


def calls_of(cupy, monkeypatch, name="gemmStridedBatchedEx"):
    """The number of batches of each call of a function of cuBLAS from here on."""
    counts, listed = [], name == "gemmBatchedEx"
    owner = functions(cupy.cuda.cublas.__file__) if listed else cupy.cuda.cublas
    original = getattr(owner, name)
    monkeypatch.setattr(owner, name, lambda *args: (counts.append(args[-3]), original(*args))[1])
    return counts


def queries_and_keys(cupy, B, H, d, dtype="float32"):
    """q and kᵀ as attention multiplies them, views of the output of one layer, and room for their product."""
    q, k, _ = to(cupy, numbers(B, 7, 3, H, d, dtype=dtype), dtype).transpose(2, 0, 3, 1, 4)
    return q, k.mT, cupy.empty((B, H, 7, 8), "float32")[..., :7]


@pytest.mark.parametrize(("dtype", "width", "offset"), [
    ("float32", 12, 1),   # each head starts on 16 bytes, unless the first number is left out
    ("bfloat16", 80, 4),  # as it must where cuBLAS may read 8 numbers at once ...
    ("bfloat16", 20, 1),  # ... or on 4 bytes for two of them
    ("float16", 128, 2),
])  # fmt: skip
def test_heads_go_in_one_call_if_there_are_more_than_three_and_their_numbers_lie_right(
    cupy, monkeypatch, dtype, width, offset
):
    counts, listed = calls_of(cupy, monkeypatch), calls_of(cupy, monkeypatch, "gemmBatchedEx")
    multiply_batches(*queries_and_keys(cupy, 5, 3, width, dtype))
    multiply_batches(*queries_and_keys(cupy, 4, 5, width, dtype))
    assert counts == [5] * 3 and listed == [20]
    q, k, scores = queries_and_keys(cupy, 4, 4, width + offset, dtype)
    with backend.products_in("tf32"):
        multiply_batches(q[..., offset:], k[..., offset:, :], scores)
    assert counts == [5] * 3 + [4] * 4 and listed == [20]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_an_odd_number_of_numbers_may_lie_anywhere_but_in_tf32(cupy, monkeypatch, dtype):
    counts, listed = calls_of(cupy, monkeypatch), calls_of(cupy, monkeypatch, "gemmBatchedEx")
    q, k, scores = queries_and_keys(cupy, 4, 5, 15, dtype)
    multiply_batches(q, k, scores)
    expected = q.astype("float32").get() @ k.astype("float32").get()
    np.testing.assert_allclose(scores.get(), expected, rtol=0, atol=1e-5)
    assert not counts and listed == [20]
    with backend.products_in("tf32"):  # the same layout again
        multiply_batches(q, k, scores)
    assert (counts, listed) == (([5] * 4, [20]) if dtype == "float32" else ([], [20, 20]))


def test_listed_matrices_are_multiplied_on_the_current_stream(cupy):
    q, k, scores = queries_and_keys(cupy, 4, 5, 15, "bfloat16")
    for stream in (cupy.cuda.Stream(non_blocking=True), cupy.cuda.Stream(non_blocking=True)):
        scores[...] = 0
        with stream:
            multiply_batches(q, k, scores)
        stream.synchronize()
        expected = q.astype("float32").get() @ k.astype("float32").get()
        np.testing.assert_allclose(scores.get(), expected, rtol=0, atol=1e-5)
    multiply_batches(q, k, scores)


def test_an_error_of_cublas_is_named(cupy):
    gemm = functions(cupy.cuda.cublas.__file__).gemmBatchedEx
    with pytest.raises(CublasError, match=r"^cublasGemmBatchedEx failed: CUBLAS_STATUS_INVALID_VALUE \(7\)$"):
        gemm(cupy.cuda.get_cublas_handle(), 0, 0, -1, 1, 1, 0, 0, 0, 1, 0, 0, 1, 0, 0, 0, 1, 1, 68, -1)


@pytest.mark.parametrize(("dtype", "width"), [("float32", 12), ("bfloat16", 15)])
def test_listed_matrices_are_multiplied_on_a_stream_that_is_captured(cupy, dtype, width):
    stream = cupy.cuda.Stream(non_blocking=True)
    handle = Handle(cupy, stream)
    q, k, scores = queries_and_keys(cupy, 4, 5, width, dtype)
    with stream:
        stream.begin_capture()
        multiply_batches(q, k, scores)
        graph = stream.end_capture()
        q[...] = to(cupy, numbers(*q.shape, seed=1, dtype=dtype), dtype)
        graph.launch()
    stream.synchronize()
    expected = q.astype("float32").get() @ k.astype("float32").get()
    np.testing.assert_allclose(scores.get(), expected, rtol=0, atol=1e-5)
    assert handle.handle


SIDES = st.sampled_from([1, 2, 8])


@pytest.mark.parametrize(("dtype", "out_dtype"), KINDS)
@pytest.mark.parametrize("most", [65535, 7])
@given(case=cases(lead=2), gap=SIDES, sides=st.tuples(SIDES, SIDES, SIDES))
def test_products_of_listed_matrices_are_numpys_in_every_memory_layout(
    cupy, most, dtype, out_dtype, case, gap, sides
):
    batch, shape, *rest = case
    shape = tuple(side * length for side, length in zip(sides, shape))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(products, "PLANS", {})
        patch.setattr(products, "FEW", 0)
        patch.setattr(products, "MOST_AT_ONCE", most)
        check(cupy, (batch, shape, *rest), dtype, out_dtype, multiply_batches, gap=gap)


def test_batches_with_one_common_stride_go_in_one_call(cupy, monkeypatch):
    counts = calls_of(cupy, monkeypatch)
    a, b = cupy.zeros((5, 2, 3, 4), "float32"), cupy.zeros((5, 2, 4, 3), "float32")
    multiply_batches(a, b, cupy.empty((5, 2, 3, 3), "float32"))
    multiply_batches(a[:1], b[:1], cupy.empty((1, 2, 3, 3), "float32"))
    assert counts == [10, 2]


def test_very_many_batches_go_in_several_calls(cupy, monkeypatch):
    counts = calls_of(cupy, monkeypatch)
    monkeypatch.setattr(products, "MOST_AT_ONCE", 4)
    a, b = numbers(10, 2, 3), numbers(10, 3, 2, seed=1)
    out = multiply_batches(to(cupy, a), to(cupy, b), cupy.empty((10, 2, 2), "float32"))
    np.testing.assert_allclose(out.get(), a @ b, atol=1e-5)
    assert counts == [4, 4, 2]


def test_plans_are_cached_for_the_next_product_and_the_cache_is_bounded(cupy, monkeypatch):
    monkeypatch.setattr(products, "PLANS", {})
    monkeypatch.setattr(products, "MOST_PLANS", 2)
    for side in (1, 2, 2, 3, 3, 1):
        x = numbers(side, side)
        out = multiply(to(cupy, x), to(cupy, x), cupy.empty((side, side), "float32"))
        np.testing.assert_allclose(out.get(), x @ x, rtol=1e-5, atol=1e-6)
    assert len(products.PLANS) == 2


def test_an_operand_may_be_broadcast_over_the_batches(cupy):
    a, b = numbers(3, 2, 4, 5), numbers(5, 2, seed=1)
    b_everywhere = cupy.broadcast_to(to(cupy, b), (3, 2, 5, 2))
    out = multiply_batches(to(cupy, a), b_everywhere, cupy.empty((3, 2, 4, 2), "float32"))
    np.testing.assert_allclose(out.get(), a @ b, atol=1e-5)


def test_tf32_rounds_float32_products_only_where_it_is_asked_for(cupy):
    a, b = numbers(64, 64), numbers(64, 64, seed=1)

    def error(dtype="float32"):
        out = multiply(to(cupy, a, dtype), to(cupy, b, dtype), cupy.empty((64, 64), "float32"))
        wanted = to(cupy, a, dtype).get().astype("float64") @ to(cupy, b, dtype).get().astype("float64")
        return abs(out.get() - wanted).max()

    def error_of_heads():
        q, k = (to(cupy, numbers(4, 4, 64, 64, seed=seed, scale=0.5)) for seed in (2, 3))
        scores = multiply_batches(q, k, cupy.empty_like(q))
        return abs(scores.get() - q.get().astype("float64") @ k.get()).max()

    assert error() < 1e-5 and error_of_heads() < 1e-5
    with backend.products_in("tf32"):
        assert 1e-4 < error() < 3e-2 and 1e-4 < error_of_heads() < 3e-2
        assert error("bfloat16") < 1e-4
    assert error() < 1e-5 and error_of_heads() < 1e-5


@pytest.mark.parametrize("function, batch", [(multiply, ()), (multiply_batches, (3,))])
def test_parts_of_a_sum_may_be_larger_than_what_the_result_can_hold(cupy, function, batch):
    k = 1 << 16
    a, b = cupy.ones((*batch, 8, k), "float16"), cupy.ones((*batch, k, 8), "float16")
    b[..., : k // 2, :] = -4
    b[..., k // 2 :, :] = 4  # each half adds up to 131,072, twice what float16 holds
    out = function(a, b, cupy.ones((*batch, 8, 8), "float16"), beta=1.0)
    np.testing.assert_array_equal(out.get(), 1)


def test_products_in_refuses_an_unknown_precision_with_the_known_ones():
    assert backend.products() == "float32"
    with pytest.raises(ValueError, match="products in 'bfloat16'; expected one of float32, tf32"), \
            backend.products_in("bfloat16"):  # fmt: skip
        pass


def test_operands_that_cublas_cannot_take_are_refused_and_nothing_is_written(cupy):
    def zeros(*shape, dtype="float32"):
        return cupy.asarray(np.zeros(shape, DTYPE.get(dtype, dtype)))

    def refused(reason, *arrays, function=multiply):
        before = arrays[2].get()
        with pytest.raises(ValueError, match=reason):
            function(*arrays)
        np.testing.assert_array_equal(arrays[2].get(), before)

    square = zeros(4, 4)
    refused("two axes", zeros(2, 4, 4), square, square)
    refused("one or two axes before", square, square, square, function=multiply_batches)
    refused("one or two axes before", zeros(2, 4, 4), zeros(3, 4, 4), zeros(2, 4, 4), function=multiply_batches)
    refused(r"don't match; got float32 \(4, 3\) with strides", zeros(4, 3), square, square)
    refused("don't match", square, square, zeros(4, 5))
    refused("two of float32, bfloat16 or float16", square, zeros(4, 4, dtype="bfloat16"), zeros(4, 4))
    refused("two of float32, bfloat16 or float16", *(zeros(4, 4, dtype="float64") for _ in range(3)))
    refused("two of float32, bfloat16 or float16", *(zeros(4, 4, dtype=d) for d in ("float16", "float16", "bfloat16")))
    refused("are contiguous", zeros(8, 8)[::2, ::2], square, zeros(4, 4))
    refused("are contiguous", square[::-1], square, zeros(4, 4))
    refused("are contiguous", cupy.broadcast_to(zeros(4), (4, 4)), square, zeros(4, 4))
    refused("are contiguous", square, square, zeros(8, 8)[::2, ::2])
    batch = zeros(3, 4, 4)
    refused("no less than 0", batch[::-1], batch, zeros(3, 4, 4), function=multiply_batches)
    refused("broadcast array", batch, batch, cupy.broadcast_to(zeros(4, 4), (3, 4, 4)), function=multiply_batches)
