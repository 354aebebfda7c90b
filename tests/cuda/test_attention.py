import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numbers_of import DTYPE, EPSILON, numbers, sizes_of_sums, to
from strategies import every_shape_that_broadcasts

import tinyvit
from tinyvit import functional as F
from tinyvit.functional.attention import AttentionCache
from tinyvit.functional.sums import sum_to_shape
from tinyvit.kernels.cuda.attention_bias import bias_gradient

BOUND = {"float32": 1e-5, "float16": 4e-3, "bfloat16": 1.6e-2}  # DESIGN.md's, of the largest number
LOW = ("bfloat16", "float16")
SIDES = st.integers(1, 5)
TOKENS = st.one_of(st.integers(1, 9), st.sampled_from((17, 65)))


def close(got, expected, dtype, largest=1.0):
    """Compare relative to the largest number, or to 1, the size of the inputs: some gradients are exactly zero."""
    got = got.get().astype("float64")
    assert got.shape == expected.shape
    np.testing.assert_allclose(got, expected, rtol=0, atol=BOUND[dtype] * max(largest, abs(expected).max(initial=0)))


def compare_with_the_reference(results, q, k, v, bias, scale, dy, dtype):
    """Compare heads and all gradients; the bias gradient is float32 and may be a sum over many dscores."""
    expected, c = F.attention.reference(q, k, v, bias, scale)
    *gradients, dbias = *F.attention_backward.reference(dy, c), *(() if bias is not None else (None,))
    sizes = sizes_of_sums(q, k, v, dy, c.probs, scale)
    for got, want, size in zip(results, (expected, *gradients), sizes):
        close(got, want, dtype, size)
    assert len(results) == (4 if bias is None else 5)
    if bias is not None:
        assert results[4].dtype == "float32"
        everywhere = np.broadcast_to(bias, c.probs.shape)
        *_, dscores = F.attention_backward.reference(dy, F.attention.reference(q, k, v, everywhere, scale)[1])
        close(results[4], dbias, dtype, largest=max(1, sum_to_shape(abs(dscores), bias.shape).max()))


def side_by_side_in(x, cupy, dtype):
    """q, k, v (3, B, H, N, d) as views of one array, as nn.Attention makes them."""
    return to(cupy, x.transpose(1, 3, 0, 2, 4), dtype).transpose(2, 0, 3, 1, 4)


@pytest.mark.parametrize("dtype", EPSILON)
@given(B=SIDES, H=SIDES, N=TOKENS, d=st.integers(1, 9), seed=st.integers(0, 99))
def test_self_attention_and_its_backward_are_those_of_the_reference(cupy, dtype, B, H, N, d, seed):
    qkv, dy = numbers(3, B, H, N, d, dtype=dtype, seed=seed), numbers(B, N, H, d, dtype=dtype, seed=seed + 1)
    y, cache = F.attention(*side_by_side_in(qkv, cupy, dtype))
    gradients = F.attention_backward(to(cupy, dy, dtype).transpose(0, 2, 1, 3), cache)
    expected, c = F.attention.reference(*qkv)
    wanted = F.attention_backward.reference(dy.transpose(0, 2, 1, 3), c)
    close(cache.probs, c.probs, dtype)
    sizes = sizes_of_sums(*qkv, dy.transpose(0, 2, 1, 3), c.probs)
    for got, want, size in zip((y, *gradients), (expected, *wanted), sizes, strict=True):
        assert got.dtype == DTYPE[dtype]
        close(got, want, dtype, size)


@pytest.mark.parametrize("dtype", EPSILON)
@given(
    sides=st.tuples(SIDES, SIDES, TOKENS, TOKENS, st.integers(1, 9), st.integers(1, 9)),
    kept=st.one_of(st.none(), st.tuples(*[st.booleans()] * 4)),
    bias_low=st.booleans(), scale=st.one_of(st.none(), st.sampled_from((0.5, 1))), seed=st.integers(0, 99),
)  # fmt: skip
def test_cross_attention_with_a_bias_is_that_of_the_reference(cupy, dtype, sides, kept, bias_low, scale, seed):
    B, H, Nq, Nk, d, dv = sides
    q, k, v, dy = (
        numbers(*shape, dtype=dtype, seed=seed + i)
        for i, shape in enumerate(((B, H, Nq, d), (B, H, Nk, d), (B, H, Nk, dv), (B, H, Nq, dv)))
    )
    bias_dtype, bias = dtype if bias_low else "float32", None
    if kept is not None:
        shape = [side if keep else 1 for side, keep in zip((B, H, Nq, Nk), kept)]
        bias = numbers(*shape, dtype=bias_dtype, seed=seed + 4)
    y, cache = F.attention(
        *(to(cupy, x, dtype) for x in (q, k, v)), None if bias is None else to(cupy, bias, bias_dtype), scale
    )
    gradients = F.attention_backward(to(cupy, dy, dtype), cache)
    compare_with_the_reference((y, *gradients), q, k, v, bias, scale, dy, dtype)


@pytest.mark.parametrize("dtype", EPSILON)
def test_heads_and_gradients_have_the_memory_layout_that_the_next_operation_reads(cupy, dtype):
    q, k, v = side_by_side_in(numbers(3, 2, 3, 5, 4, dtype=dtype), cupy, dtype)
    y, cache = F.attention(q, k, v)
    assert y.transpose(0, 2, 1, 3).flags.c_contiguous
    assert cache.q is q and cache.k is k and cache.v is v
    assert all(stride % 16 == 0 for stride in cache.probs.strides[:3]), "the rows start on boundaries of 16 bytes"
    joined = F.attention_backward(y, cache).joined
    assert joined.shape == (2, 5, 3, 3, 4) and joined.base is None, "gradients lie side by side, without a copy"


@pytest.mark.parametrize("dtype", LOW)
def test_cases_without_a_kernel_run_in_float32_and_return_the_input_dtype(cupy, dtype):
    q, k, v, dy = numbers(4, 3, 5, 4, dtype=dtype)  # no batch: three axes
    y, cache = F.attention(*(to(cupy, x, dtype) for x in (q, k, v)))
    gradients = F.attention_backward(to(cupy, dy, dtype), cache)
    expected, c = F.attention.reference(q, k, v)
    assert cache.probs.dtype == "float32"
    for got, want in zip((y, *gradients), (expected, *F.attention_backward.reference(dy, c)), strict=True):
        assert got.dtype == DTYPE[dtype]
        np.testing.assert_allclose(got.get().astype("float64"), want, rtol=EPSILON[dtype], atol=1e-5)


@pytest.mark.parametrize("dtype", EPSILON)
@pytest.mark.parametrize("operation, options", [(F.attention, {}), (F.tiled_attention, {"tile": 3})])
def test_a_bias_of_every_shape_gets_its_gradient_and_masked_rows_give_zeros(cupy, operation, options, dtype):
    q, dy = numbers(2, 2, 3, 5, 6, dtype=dtype)
    k, v = numbers(2, 2, 3, 4, 6, dtype=dtype, seed=1)
    for shape in every_shape_that_broadcasts(2, 3, 5, 4):
        bias = numbers(*shape, seed=2)
        bias.reshape(-1, shape[-1])[0] = -np.inf if shape[-1] > 1 else 0
        y, cache = operation(*(to(cupy, x, dtype) for x in (q, k, v)), to(cupy, bias), **options)
        expected, c = F.attention.reference(q, k, v, bias)
        wanted = F.attention_backward.reference(dy, c)
        gradients = F.attention_backward(to(cupy, dy, dtype), cache)
        for got, want in zip((y, cache.probs, *gradients), (expected, c.probs, *wanted), strict=True):
            close(got, want, dtype, largest=3)


@pytest.mark.parametrize("shape", [(40, 1, 50, 70), (3, 1, 70), (1, 1, 50, 1), (70,), (1,)])
def test_the_gradient_of_a_bias_is_summed_in_segments_in_one_order(cupy, any_order, shape):
    dscores = to(cupy, numbers(40, 3, 50, 72))[..., :70]
    summed = bias_gradient(dscores, shape)
    assert summed.dtype == "float32" and summed.shape == shape
    np.testing.assert_allclose(summed.get(), sum_to_shape(dscores.get().astype("float64"), shape), rtol=1e-6, atol=1e-5)


def test_odd_cases_in_float32_are_left_to_the_reference(cupy):
    q, k, v = numbers(3, 2, 3, 5, 4)
    scale = np.full((3, 1, 1), 0.5)
    for odd in ({"scale": cupy.asarray(scale)}, {"bias": cupy.asarray(np.zeros(5))}):
        y, cache = F.attention(*(to(cupy, x) for x in (q, k, v)), **odd)
        assert y.dtype == "float64"
        expected, _ = F.attention.reference(q, k, v, **({"scale": scale} if "scale" in odd else {}))
        np.testing.assert_allclose(y.get(), expected, rtol=0, atol=1e-6)
    empty = to(cupy, numbers(0, 3, 5, 4))
    y, cache = F.attention(empty, empty, empty)
    assert y.shape == (0, 3, 5, 4) and [g.shape for g in F.attention_backward(y, cache)] == [(0, 3, 5, 4)] * 3


def test_a_backward_takes_the_cache_of_the_reference(cupy):
    q, k, v, dy = (to(cupy, x) for x in numbers(4, 2, 3, 5, 4))
    with tinyvit.reference():
        _, cache = F.attention(q, k, v)
        wanted = F.attention_backward(dy, cache)
    for got, want in zip(F.attention_backward(dy, cache), wanted, strict=True):
        close(got, want.get(), "float32")


@pytest.mark.parametrize("dtype", LOW)
def test_a_gradient_of_another_dtype_than_the_queries_is_refused(cupy, dtype):
    q, k, v, dy = (to(cupy, x, dtype) for x in numbers(4, 2, 3, 5, 4))
    _, cache = F.attention(q, k, v)
    with pytest.raises(ValueError, match=f"expected dy in {dtype}, like the queries, got float32"):
        F.attention_backward(dy.astype("float32"), cache)


def test_incompatible_shapes_are_refused(cupy):
    q, k, v, _ = (to(cupy, x) for x in numbers(4, 2, 3, 5, 4))
    with pytest.raises(ValueError, match="expected q"):
        F.attention(q, k[:, :, :3], v)
    with pytest.raises(ValueError, match="doesn't broadcast to the scores"):
        F.attention(q, k, v, bias=to(cupy, numbers(4)))


@pytest.mark.parametrize("dtype", EPSILON)
def test_attention_has_the_same_bits_in_any_order_of_the_threads(cupy, any_order, dtype):
    y, cache = F.attention(*side_by_side_in(numbers(3, 2, 3, 33, 4, dtype=dtype), cupy, dtype))
    F.attention_backward(y, cache)


def test_only_what_the_cache_keeps_is_as_large_as_the_scores(cupy, monkeypatch):
    """The forward makes the probabilities in place; the backward needs one more array of their size."""
    sizes, empty = [], cupy.empty
    monkeypatch.setattr(cupy, "empty", lambda shape, dtype=float: (sizes.append(shape), empty(shape, dtype))[1])
    q, k, v = side_by_side_in(numbers(3, 2, 3, 9, 4), cupy, "float32")
    y, cache = F.attention(q, k, v)
    assert isinstance(cache, AttentionCache) and sizes == [(2, 3, 9, 12), (2, 9, 3, 4)]
    sizes.clear()
    F.attention_backward(y, cache)
    assert sizes == [(2, 9, 3, 3, 4), (2, 3, 9, 12)]


@pytest.mark.parametrize("axes", [(0,), (1,), (2,), (3,), (0, 1, 2, 3)])
def test_arrays_with_negative_strides_are_read_correctly(cupy, axes):
    q, k, v, dy = numbers(4, 2, 3, 5, 4)
    backwards = tuple(slice(None, None, -1) if axis in axes else slice(None) for axis in range(4))
    y, cache = F.attention(*(to(cupy, x)[backwards] for x in (q, k, v)))
    gradients = F.attention_backward(to(cupy, dy)[backwards], cache)
    expected, c = F.attention.reference(*(x[backwards] for x in (q, k, v)))
    for got, want in zip((y, *gradients), (expected, *F.attention_backward.reference(dy[backwards], c))):
        close(got, want, "float32")
