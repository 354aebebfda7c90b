from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numbers_of import EPSILON, numbers, to

from tinyvit import functional as F
from tinyvit.functional.layernorm import LayerNormCache
from tinyvit.kernels.cuda import layernorm

ROWS = st.lists(st.integers(0, 5), max_size=2).map(tuple)
WIDTHS = st.integers(1, 40) | st.sampled_from([192, 256, 264, 384, 768, 1000, 1024, 1025, 1032, 2056])


def as_right_as_the_reference(cupy, x, weight, bias, dy, dtype, most=512):
    """Compare the kernels' y, cache and gradients with the reference implementation in float64."""
    with mock.patch.multiple(layernorm, MOST_FORWARD=most, MOST_BACKWARD=most):
        y, cache = F.layernorm(to(cupy, x, dtype), to(cupy, weight), to(cupy, bias))
        dx, dweight, dbias = F.layernorm_backward(to(cupy, dy, dtype), cache)
    expected, c = F.layernorm.reference(x, weight, bias)
    assert y.dtype == dx.dtype == dtype and cache.mean.dtype == cache.rstd.dtype == cache.xhat.dtype == "float32"
    eps = EPSILON[dtype] + 1e-6
    np.testing.assert_allclose(y.get().astype("float64"), expected, rtol=eps, atol=2 * eps)
    np.testing.assert_allclose(cache.xhat.get(), c.xhat, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(cache.rstd.get(), c.rstd, rtol=1e-5)
    np.testing.assert_allclose(cache.mean.get(), x.mean(-1, keepdims=True), rtol=1e-6, atol=1e-6)
    # From the same statistics, to compare the backward only: 1 / √(σ² + ε) may be large.
    c = LayerNormCache(cache.xhat.get().astype("float64"), cache.rstd.get().astype("float64"), weight)
    wanted = F.layernorm_backward.reference(dy, c)
    largest = abs(wanted[0]).max() if dy.size else 0
    np.testing.assert_allclose(dx.get().astype("float64"), wanted[0], rtol=2 * eps, atol=1e-6 + 4e-6 * largest)
    for got, want in zip((dweight, dbias), wanted[1:], strict=True):
        assert got.dtype == "float32"
        np.testing.assert_allclose(got.get(), want, rtol=1e-4, atol=1e-5 * max(1, abs(want).max()))
    return y, cache, dx


@pytest.mark.parametrize("dtype", EPSILON)
@given(rows=ROWS, D=WIDTHS, seed=st.integers(0, 99), shift=st.sampled_from([0.0, 3.0]))
def test_layernorm_and_its_backward_are_those_of_the_reference(cupy, dtype, rows, D, seed, shift):
    x = (numbers(*rows, D, dtype=dtype, seed=seed) + shift).astype("float16").astype("float64")
    x = to(cupy, x, dtype).get().astype("float64")
    weight, bias = numbers(2, D, seed=seed + 1)
    as_right_as_the_reference(cupy, x, weight, bias, numbers(*rows, D, dtype=dtype, seed=seed + 2), dtype)


@pytest.mark.parametrize("dtype", EPSILON)
@pytest.mark.parametrize("rows, D", [(700, 24), (70, 1030)])
def test_warps_and_blocks_process_all_of_their_rows(cupy, dtype, rows, D):
    x, dy = numbers(2, rows, D, dtype=dtype)
    weight, bias = numbers(2, D)
    as_right_as_the_reference(cupy, x, weight, bias, dy, dtype, most=2)


@given(rows=st.integers(1, 9), D=st.sampled_from([5, 24, 1030]), wanted=st.tuples(st.booleans(), st.booleans()))
def test_gradients_are_added_into_the_given_arrays_or_left_out(cupy, rows, D, wanted):
    x, weight, bias, dy = (to(cupy, numbers(*shape)) for shape in ((rows, D), (D,), (D,), (rows, D)))
    _, cache = F.layernorm(x, weight, bias)
    dx, *alone = F.layernorm_backward(dy, cache)
    into = tuple(to(cupy, np.ones(D)) if want else False for want in wanted)
    again, *parameters = F.layernorm_backward(dy, cache, into=into)
    np.testing.assert_array_equal(again.get(), dx.get())
    for got, want, goal, gradient in zip(parameters, wanted, into, alone, strict=True):
        assert got is (goal if want else None)
        if want:
            np.testing.assert_array_equal(got.get(), 1 + gradient.get())


@pytest.mark.parametrize("D", [64, 1500])
def test_a_large_mean_costs_no_more_digits_than_it_has_to(cupy, D):
    x = (1e4 + np.random.default_rng(0).standard_normal((50, D))).astype("float32").astype("float64")
    weight, bias, dy = np.ones(D), np.zeros(D), numbers(50, D)
    y, cache = F.layernorm(to(cupy, x), to(cupy, weight), to(cupy, bias))
    expected, c = F.layernorm.reference(x, weight, bias)
    np.testing.assert_allclose(y.get(), expected, rtol=0, atol=2e-6)
    np.testing.assert_allclose(cache.xhat.get(), expected, rtol=0, atol=2e-6)
    dx, *_ = F.layernorm_backward(to(cupy, dy), cache)
    np.testing.assert_allclose(dx.get(), F.layernorm_backward.reference(dy, c)[0], rtol=0, atol=1e-5)


@pytest.mark.parametrize("eps", [1e-6, 1e-12])
@pytest.mark.parametrize("D", [1, 768, 1100])
def test_rows_of_one_number_give_the_bias_and_no_gradient(cupy, D, eps):
    x = np.repeat(np.random.default_rng(0).uniform(1e4, 1e6, (30, 1)), D, 1)
    y, cache = F.layernorm(to(cupy, x), to(cupy, np.ones(D)), to(cupy, np.full(D, 2.0)), eps)
    np.testing.assert_array_equal(y.get(), 2)
    dx, *_ = F.layernorm_backward(y, cache)
    assert abs(dx.get()).max() <= 1e-6 / eps**0.5


@pytest.mark.parametrize("dtype", EPSILON)
def test_arrays_in_another_memory_order_are_read_correctly(cupy, dtype):
    x, dy = numbers(2, 6, 4, 16, dtype=dtype)
    weight, bias = numbers(2, 16)
    plain = [to(cupy, array, dtype).transpose(1, 0, 2) for array in (x, dy)]
    y, cache = F.layernorm(plain[0], to(cupy, weight), to(cupy, bias))
    straight, c = F.layernorm(to(cupy, x, dtype), to(cupy, weight), to(cupy, bias))
    np.testing.assert_array_equal(y.get(), straight.transpose(1, 0, 2).get())
    dx, *_ = F.layernorm_backward(plain[1], cache)
    wanted, *_ = F.layernorm_backward(to(cupy, dy, dtype), c)
    np.testing.assert_array_equal(dx.get(), wanted.transpose(1, 0, 2).get())


def test_unaligned_rows_are_read_one_number_at_a_time(cupy):
    flat, weight, bias = numbers(3 * 16 + 1), np.ones(16), np.zeros(16)
    y, _ = F.layernorm(to(cupy, flat)[1:].reshape(3, 16), to(cupy, weight), to(cupy, bias))
    expected, _ = F.layernorm.reference(flat[1:].reshape(3, 16), weight, bias)
    np.testing.assert_allclose(y.get(), expected, rtol=1e-5, atol=1e-6)


def test_shapes_that_do_not_fit_are_refused_as_in_the_reference(cupy):
    for dtype in EPSILON:
        with pytest.raises(ValueError, match="layernorm: expected x .* with D > 0, got"):
            F.layernorm(to(cupy, np.ones((2, 3)), dtype), to(cupy, np.ones(4)), to(cupy, np.ones(3)))


def test_mixed_dtypes_take_the_reference_in_float32_and_are_refused_in_low_precision(cupy):
    x, weight, bias = numbers(4, 6), np.ones(6), np.zeros(6)
    y, cache = F.layernorm(to(cupy, x), cupy.asarray(weight), to(cupy, bias))
    np.testing.assert_allclose(y.get(), F.layernorm.reference(x, weight, bias)[0], rtol=1e-6, atol=1e-6)
    _, cache = F.layernorm(to(cupy, x), to(cupy, weight), to(cupy, bias))
    dx, _, dbias = F.layernorm_backward(cupy.asarray(x), cache, into=(False, to(cupy, bias)))
    assert dx.dtype == "float64" and dbias.dtype == "float32"
    with pytest.raises(ValueError, match="layernorm: no kernel for .*bfloat16.* together .*; compute"):
        F.layernorm(to(cupy, x, "bfloat16"), cupy.asarray(weight), to(cupy, bias))
    _, cache = F.layernorm(to(cupy, x, "float16"), to(cupy, weight), to(cupy, bias))
    with pytest.raises(ValueError, match="layernorm_backward: no kernel for .*bfloat16.* together .*; compute"):
        F.layernorm_backward(to(cupy, x, "bfloat16"), cache)


@pytest.mark.parametrize("D", [200, 1028])
def test_the_order_of_the_threads_changes_no_bit(cupy, any_order, D):
    x, weight, bias = to(cupy, numbers(20, D)), to(cupy, np.ones(D)), to(cupy, np.zeros(D))
    _, cache = F.layernorm(x, weight, bias)
    F.layernorm_backward(x, cache)
