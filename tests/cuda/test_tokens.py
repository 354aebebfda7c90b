import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numbers_of import EPSILON, numbers, to

from tinyvit import functional as F
from tinyvit.kernels.cuda import tokens

SHAPES = st.tuples(st.integers(0, 4), st.integers(1, 20), st.sampled_from([1, 3, 8, 16, 40, 264, 300]))
SEEDS = st.integers(0, 99)


def assert_close(got, expected, dtype, rounding=1):
    """Compare within this many roundings of the dtype."""
    assert got.dtype == dtype
    got = got.get().astype("float64")
    np.testing.assert_allclose(got, expected, rtol=rounding * EPSILON[dtype], atol=rounding * EPSILON[dtype])


@pytest.mark.parametrize("dtype", EPSILON)
@given(shape=SHAPES, seed=SEEDS)
def test_the_token_is_prepended_and_gets_the_sum_of_its_gradients(cupy, dtype, shape, seed):
    B, N, D = shape
    x, token, dy = numbers(*shape, dtype=dtype), numbers(1, 1, D, seed=seed), numbers(B, N + 1, D, dtype=dtype)
    y, cache = F.prepend_token(to(cupy, x, dtype), to(cupy, token))
    dx, dtoken = F.prepend_token_backward(to(cupy, dy, dtype), cache)
    assert_close(y, F.prepend_token.reference(x, token)[0], dtype)
    assert_close(dx, dy[:, 1:], dtype)
    assert_close(dtoken, dy[:, :1].sum(0, keepdims=True), "float32", rounding=4)


def test_the_tokens_gradient_is_added_into_the_given_array_or_left_out(cupy):
    dy, before = numbers(3, 5, 8), numbers(1, 1, 8, seed=1)
    into = to(cupy, before)
    _, cache = F.prepend_token(to(cupy, dy[:, 1:]), to(cupy, before))
    dx, dtoken = F.prepend_token_backward(to(cupy, dy), cache, into=(into,))
    assert dtoken is into
    np.testing.assert_allclose(into.get(), before + dy[:, :1].sum(0, keepdims=True), rtol=1e-6, atol=1e-6)
    alone, none = F.prepend_token_backward(to(cupy, dy), cache, into=(False,))
    assert none is None
    np.testing.assert_array_equal(alone.get(), dx.get())


@pytest.mark.parametrize("dtype", EPSILON)
@given(shape=SHAPES, seed=SEEDS)
def test_pooling_reads_the_class_token_which_alone_gets_a_gradient(cupy, dtype, shape, seed):
    x, dy = numbers(*shape, dtype=dtype, seed=seed), numbers(shape[0], shape[2], dtype=dtype, seed=seed)
    y, cache = F.pool_token(to(cupy, x, dtype))
    assert_close(y, x[:, 0], dtype)
    assert_close(F.pool_token_backward(to(cupy, dy, dtype), cache), F.pool_token_backward.reference(dy, cache), dtype)


@pytest.mark.parametrize("dtype", EPSILON)
@given(shape=SHAPES, prefix=st.integers(0, 2), seed=SEEDS)
def test_the_mean_over_the_patches_and_its_gradient_are_those_of_the_reference(cupy, dtype, shape, prefix, seed):
    B, N, D = shape
    x, dy = numbers(B, prefix + N, D, dtype=dtype, seed=seed), numbers(B, D, dtype=dtype, seed=seed)
    y, cache = F.pool_mean(to(cupy, x, dtype), prefix)
    assert_close(y, F.pool_mean.reference(x, prefix)[0], dtype, rounding=2)
    dx = F.pool_mean_backward(to(cupy, dy, dtype), cache)
    assert_close(dx, F.pool_mean_backward.reference(dy, cache), dtype, rounding=2)


@pytest.mark.parametrize("dtype", EPSILON)
@given(shape=SHAPES, count=st.integers(1, 3), at=st.integers(0, 3), seed=SEEDS)
def test_tokens_are_inserted_and_get_the_sum_of_their_gradients(cupy, dtype, shape, count, at, seed):
    (B, N, D), at = shape, min(at, shape[1])
    x, token = numbers(*shape, dtype=dtype), numbers(1, count, D, seed=seed)
    y, cache = F.insert_tokens(to(cupy, x, dtype), to(cupy, token), at)
    assert_close(y, F.insert_tokens.reference(x, token, at)[0], dtype)
    dy, before = numbers(B, N + count, D, dtype=dtype), numbers(1, count, D, seed=seed + 1)
    expected = F.insert_tokens_backward.reference(dy, cache)
    into = to(cupy, before)
    dx, dtoken = F.insert_tokens_backward(to(cupy, dy, dtype), cache, into=(into,))
    assert dtoken is into
    assert_close(dx, expected[0], dtype)
    np.testing.assert_allclose(into.get(), before + expected[1], rtol=4e-6, atol=4e-6)
    alone, none = F.insert_tokens_backward(to(cupy, dy, dtype), cache, into=(False,))
    assert none is None
    np.testing.assert_array_equal(alone.get(), dx.get())


@pytest.mark.parametrize("dtype", EPSILON)
def test_the_first_tokens_are_read_side_by_side(cupy, dtype):
    x, dy = numbers(3, 5, 8, dtype=dtype), numbers(3, 16, dtype=dtype, seed=1)
    y, cache = F.first_tokens(to(cupy, x, dtype), 2)
    assert_close(y, x[:, :2].reshape(3, 16), dtype)
    dx = F.first_tokens_backward(to(cupy, dy, dtype), cache)
    assert_close(dx, F.first_tokens_backward.reference(dy, cache), dtype)


@pytest.mark.parametrize("D", [5, 16])
def test_more_samples_than_a_grid_is_high_are_processed_in_turns(cupy, monkeypatch, D):
    monkeypatch.setattr(tokens, "MOST_SAMPLES", 3)
    x, token = numbers(8, 11, D), numbers(1, 1, D, seed=1)
    np.testing.assert_array_equal(F.prepend_token(to(cupy, x), to(cupy, token))[0].get()[:, 1:], to(cupy, x).get())
    np.testing.assert_array_equal(F.pool_token(to(cupy, x))[0].get(), to(cupy, x).get()[:, 0])
    y, cache = F.pool_mean(to(cupy, x))
    assert_close(y, x[:, 1:].mean(1), "float32", rounding=4)
    assert_close(F.pool_mean_backward(y, cache), F.pool_mean_backward.reference(y.get(), cache), "float32", rounding=2)


def test_tokens_of_other_strides_give_the_same(cupy):
    x = numbers(4, 6, 16)
    turned, straight = to(cupy, x.transpose(1, 0, 2)).transpose(1, 0, 2), to(cupy, x)
    for function in (F.pool_token, F.pool_mean):
        np.testing.assert_array_equal(function(turned)[0].get(), function(straight)[0].get())


def test_a_token_of_another_width_is_refused(cupy):
    with pytest.raises(ValueError, match=r"a token \(1, 1, D\), got \(2, 3, 4\) and \(1, 1, 5\)"):
        F.prepend_token(to(cupy, numbers(2, 3, 4)), to(cupy, numbers(1, 1, 5)))


@pytest.mark.parametrize("dtype", EPSILON)
def test_the_order_of_the_threads_changes_no_bit(cupy, any_order, dtype):
    x, token = to(cupy, numbers(3, 21, 264, dtype=dtype), dtype), to(cupy, numbers(1, 1, 264))
    y, cache = F.prepend_token(x, token)
    F.prepend_token_backward(y, cache)
    for forward in (F.pool_token, F.pool_mean):
        pooled, cache = forward(y)
        forward.backward(pooled, cache)
