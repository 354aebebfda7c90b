import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numbers_of import EPSILON, numbers, to

from tinyvit import functional as F
from tinyvit.functional.tanh import TanhCache


@pytest.mark.parametrize("gelu", [F.gelu, F.gelu_tanh], ids=lambda gelu: gelu.__name__)
@pytest.mark.parametrize("dtype", EPSILON)
@given(shape=st.lists(st.integers(0, 40), max_size=3).map(tuple), seed=st.integers(0, 99))
def test_gelu_and_its_backward_are_those_of_the_reference(cupy, gelu, dtype, shape, seed):
    x, dy = numbers(2, *shape, dtype=dtype, seed=seed, scale=3)
    y, cache = gelu(to(cupy, x, dtype))
    dx = gelu.backward(to(cupy, dy, dtype), cache)
    expected, c = gelu.reference(x)
    assert y.dtype == dx.dtype == dtype and y.shape == dx.shape == shape
    np.testing.assert_allclose(y.get().astype("float64"), expected, rtol=2 * EPSILON[dtype], atol=EPSILON[dtype])
    for field in c._fields:  # x, and Φ(x) or the tanh, which is computed in float32 when asked for
        np.testing.assert_allclose(getattr(cache, field).get().astype("float64"), getattr(c, field), atol=1e-6)
    wanted = gelu.backward.reference(dy, c)
    # The slope is at most 1.13, and is rounded, as is its product with dy; below 2^-24 float16 has no numbers.
    assert (abs(dx.get().astype("float64") - wanted) <= 3 * EPSILON[dtype] * abs(dy) + 2.0**-25).all()


@pytest.mark.parametrize("dtype", EPSILON)
@given(rows=st.sampled_from([(), (0,), (7,), (3, 5), (90,)]), D=st.sampled_from([1, 24, 264]), seed=st.integers(0, 9))
def test_bias_gelu_and_its_backward_are_those_of_the_reference(cupy, dtype, rows, D, seed):
    x, dy = numbers(2, *rows, D, dtype=dtype, seed=seed, scale=2)
    bias = numbers(D, seed=seed + 1)
    y, cache = F.bias_gelu(to(cupy, x, dtype), to(cupy, bias))
    into = to(cupy, np.ones(D))
    dx, dbias = F.bias_gelu_backward(to(cupy, dy, dtype), cache, into=(into,))
    expected, c = F.bias_gelu.reference(x, bias)
    assert y.dtype == dx.dtype == dtype and y.shape == dx.shape == x.shape and dbias is into
    np.testing.assert_allclose(y.get().astype("float64"), expected, rtol=2 * EPSILON[dtype], atol=EPSILON[dtype])
    np.testing.assert_allclose(cache.cdf.get(), c.cdf, atol=1e-6)
    wanted, sums = F.bias_gelu_backward.reference(dy, c)
    assert (abs(dx.get().astype("float64") - wanted) <= 3 * EPSILON[dtype] * abs(dy) + 2.0**-25).all()
    np.testing.assert_allclose(dbias.get(), 1 + sums, rtol=1e-5, atol=1e-5 * (1 + abs(dy).sum()))
    again, nothing = F.bias_gelu_backward(to(cupy, dy, dtype), cache, into=(False,))
    assert nothing is None
    np.testing.assert_array_equal(again.get(), dx.get())


def test_bias_gelu_refuses_what_does_not_fit_and_has_the_same_bits_in_any_order(cupy, any_order):
    x, bias = to(cupy, numbers(70, 24), "bfloat16"), to(cupy, numbers(24))
    F.bias_gelu_backward(x, F.bias_gelu(x, bias)[1])
    with pytest.raises(ValueError, match=r"bias_gelu: expected x \(..., D\) and bias \(D,\), got"):
        F.bias_gelu(x, bias[1:])
    with pytest.raises(ValueError, match="bias_gelu: no kernel for bfloat16, float64 together"):
        F.bias_gelu(x, cupy.asarray(numbers(24)))


@pytest.mark.parametrize("gelu", [F.gelu, F.gelu_tanh], ids=lambda gelu: gelu.__name__)
@pytest.mark.parametrize("dtype", EPSILON)
def test_the_largest_numbers_of_the_dtype_do_not_overflow(cupy, gelu, dtype):
    largest = 65504.0 if dtype == "float16" else 3e38
    x = to(cupy, np.array([largest, -largest, 1e19, -1e19, 1e4, -1e4, 20, -20]).clip(-largest, largest), dtype)
    y, cache = gelu(x)
    np.testing.assert_array_equal(y.get().astype("float64"), np.maximum(x.get().astype("float64"), 0))
    slope = gelu.backward(to(cupy, np.ones(8), dtype), cache)
    np.testing.assert_array_equal(slope.get().astype("float64"), [1, 0] * 4)


@pytest.mark.parametrize("gelu", [F.gelu, F.gelu_tanh], ids=lambda gelu: gelu.__name__)
def test_gelu_has_the_same_bits_in_any_order_of_the_threads(cupy, any_order, gelu):
    x = to(cupy, numbers(5, 77, seed=1), "float32")
    _, cache = gelu(x)
    gelu.backward(x, cache)


@pytest.mark.parametrize("dtype", EPSILON)
@given(shape=st.lists(st.integers(0, 40), max_size=3).map(tuple), seed=st.integers(0, 99))
def test_tanh_and_its_backward_are_those_of_the_reference(cupy, dtype, shape, seed):
    x, dy = numbers(2, *shape, dtype=dtype, seed=seed, scale=2)
    y, cache = F.tanh(to(cupy, x, dtype))
    dx = F.tanh_backward(to(cupy, dy, dtype), cache)
    assert y.dtype == dx.dtype == dtype and y.shape == dx.shape == shape
    np.testing.assert_allclose(y.get().astype("float64"), np.tanh(x), rtol=EPSILON[dtype] + 3e-7)
    # From the same y, so that only the backward is compared.
    wanted = F.tanh_backward.reference(dy, TanhCache(y.get().astype("float64")))
    np.testing.assert_allclose(dx.get().astype("float64"), wanted, rtol=EPSILON[dtype] + 1e-6, atol=1e-6)


def test_tanh_reads_arrays_in_any_memory_order(cupy):
    x = numbers(2, 5, 6)
    y, cache = F.tanh(to(cupy, x).transpose(2, 0, 1))
    np.testing.assert_allclose(y.get(), np.tanh(x).transpose(2, 0, 1), rtol=1e-6)
    dx = F.tanh_backward(to(cupy, x).transpose(2, 0, 1), cache)
    np.testing.assert_allclose(dx.get(), (x * (1 - np.tanh(x) ** 2)).transpose(2, 0, 1), rtol=1e-5, atol=1e-6)


def test_gradients_of_tanh_in_another_dtype_are_those_of_the_reference_or_refused(cupy):
    x = numbers(3, 5)
    _, cache = F.tanh(to(cupy, x))
    assert F.tanh_backward(cupy.asarray(x), cache).dtype == "float64"
    with pytest.raises(ValueError, match=r"tanh_backward: no kernel for .*bfloat16.* together .*; compute in float32"):
        F.tanh_backward(to(cupy, x, "bfloat16"), cache)


def test_tanh_has_the_same_bits_in_any_order_of_the_threads(cupy, any_order):
    x = to(cupy, numbers(5, 77))
    F.tanh_backward(x, F.tanh(x)[1])


@pytest.mark.parametrize("dtype", EPSILON)
@given(shape=st.lists(st.integers(0, 40), max_size=3).map(tuple), seed=st.integers(0, 99))
def test_relu_and_its_backward_are_bit_for_bit_those_of_the_reference(cupy, dtype, shape, seed):
    x, dy = numbers(2, *shape, dtype=dtype, seed=seed)
    x, dy = np.where(x > 1.5, np.nan, np.where(x < -1.5, 0, x)), np.where(dy > 1.5, np.inf, dy)
    y, cache = F.relu(to(cupy, x, dtype))
    dx = F.relu_backward(to(cupy, dy, dtype), cache)
    expected, c = F.relu.reference(x)
    assert y.dtype == dx.dtype == dtype and cache.y is y
    np.testing.assert_array_equal(y.get().astype("float64"), expected)
    np.testing.assert_array_equal(dx.get().astype("float64"), F.relu_backward.reference(dy, c))


def test_gradients_of_relu_in_another_dtype_are_those_of_the_reference_or_refused(cupy):
    x = numbers(3, 5)
    _, cache = F.relu(to(cupy, x))
    assert F.relu_backward(cupy.asarray(x), cache).dtype == "float64"
    with pytest.raises(ValueError, match=r"relu_backward: no kernel for .*bfloat16.* together .*; compute in float32"):
        F.relu_backward(to(cupy, x, "bfloat16"), cache)
