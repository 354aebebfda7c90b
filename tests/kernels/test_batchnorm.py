from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import LAYOUTS, laid_out, seeds

from tinyvit import functional as F
from tinyvit.functional.batchnorm import BatchNormCache, RunningNormCache


@st.composite
def cases(draw):
    """x and dy (B, C, …), weight and bias (C,), float32, in any memory order."""
    B, C = draw(st.integers(1, 5)), draw(st.integers(1, 4))
    sides = draw(st.sampled_from([(1,), (7,), (3, 5), (16, 17), (3, 2, 4)]))
    shape = (max(B, 2) if sides == (1,) else B, C, *sides)
    generator, layouts = np.random.default_rng(draw(seeds())), st.sampled_from(LAYOUTS)
    x, dy = generator.standard_normal((2, *shape)).astype("float32")
    x += draw(st.sampled_from([0.0, 3.0, -100.0]))
    weight, bias = generator.standard_normal((2, C)).astype("float32")
    return laid_out(x, draw(layouts)), laid_out(dy, draw(layouts)), weight, bias


def in_float64(*arrays):
    return [array.astype("float64") for array in arrays]


def assert_close(found, exact, scale):
    assert found.dtype == "float32" and found.shape == exact.shape
    np.testing.assert_allclose(found, exact, rtol=1e-4, atol=2e-6 * scale)


@given(cases())
def test_training_is_as_right_as_the_reference(case):
    x, dy, weight, bias = case
    y, cache = F.batch_norm(x, weight, bias)
    exact, exact_cache = F.batch_norm.reference(*in_float64(x, weight, bias))
    # x itself is rounded to 1e-7 of its largest number, which the division by the deviation enlarges.
    scale = 1 + abs(x).max() * exact_cache.rstd.max() * max(1, abs(weight).max())
    assert_close(y, exact, scale)
    assert_close(cache.mean, exact_cache.mean, scale)
    assert_close(cache.variance, exact_cache.variance, scale)
    # From the same cache, so that only the backward is compared.
    same = BatchNormCache(*in_float64(cache.xhat, cache.rstd, weight), None, None, cache.count, None)
    expected = F.batch_norm_backward.reference(dy.astype("float64"), same)
    for found, exact in zip(F.batch_norm_backward(dy, cache), expected, strict=True):
        assert_close(found, exact, 10 * (1 + abs(exact).max() + cache.rstd.max()))


@given(cases(), seeds())
def test_evaluation_is_as_right_as_the_reference(case, seed):
    x, dy, weight, bias = case
    mean, variance = np.random.default_rng(seed).uniform(0.1, 2, (2, len(weight))).astype("float32")
    y, cache = F.batch_norm_running(x, weight, bias, mean, variance)
    exact, _ = F.batch_norm_running.reference(*in_float64(x, weight, bias, mean, variance))
    assert_close(y, exact, 1 + abs(exact).max())
    same = RunningNormCache(*in_float64(cache.xhat, cache.rstd, weight))
    expected = F.batch_norm_running_backward.reference(dy.astype("float64"), same)
    for found, exact in zip(F.batch_norm_running_backward(dy, cache), expected, strict=True):
        assert_close(found, exact, 10 * (1 + abs(exact).max()))


@given(cases())
def test_gradients_are_added_into_the_given_arrays_or_left_out(case):
    x, dy, weight, bias = case
    _, cache = F.batch_norm(x, weight, bias)
    dx, dweight, dbias = F.batch_norm_backward(dy, cache)
    total = np.ones_like(weight)
    left_out = F.batch_norm_backward(dy, cache, into=(False, total))
    np.testing.assert_array_equal(left_out[0], dx)
    assert left_out[1] is None and left_out[2] is total
    np.testing.assert_array_equal(total, 1 + dbias)
    np.testing.assert_array_equal(F.batch_norm_backward(dy, cache, into=(None, False))[1], dweight)


def test_a_large_mean_costs_no_more_digits_than_it_has_to():
    x = (1e4 + np.random.default_rng(0).standard_normal((20, 3, 8, 8))).astype("float32")
    y, cache = F.batch_norm(x, np.ones(3, "float32"), np.zeros(3, "float32"))
    exact, exact_cache = F.batch_norm.reference(x.astype("float64"), np.ones(3), np.zeros(3))
    assert abs(y - exact).max() < 1e-4
    np.testing.assert_allclose(cache.variance, exact_cache.variance, rtol=1e-5)


@pytest.mark.parametrize("value", [1e4, 1e6 / 3])
def test_channels_of_one_number_never_give_nan(value):
    x, ones = np.full((4, 2, 3, 3), value, "float32"), np.ones(2, "float32")
    y, cache = F.batch_norm(x, ones, 2 * ones)
    np.testing.assert_allclose(y, 2, atol=1e-3)
    assert all(np.isfinite(gradient).all() for gradient in F.batch_norm_backward(np.ones_like(y), cache))


def test_parts_that_are_joined_have_the_statistics_of_the_whole():
    x = 3 + np.random.default_rng(0).standard_normal((6, 3, 4, 5)).astype("float32")
    weight, bias = np.ones((2, 3), "float32")
    expected, whole = F.batch_norm(x, weight, bias)
    own = []

    def gather(i, values):  # the first pass takes down what each part has, the second gives it to all
        own.append(values)
        return [values, values] if len(own) < 3 else own[:2]

    parts = x[:1], x[1:]
    for i, part in enumerate(parts):
        F.batch_norm(part, weight, bias, join=partial(gather, i))
    y, cache = F.batch_norm(parts[1], weight, bias, join=partial(gather, 1))
    np.testing.assert_allclose(y, expected[1:], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(cache.variance, whole.variance, rtol=1e-6)


def test_other_dtypes_take_the_reference():
    x = np.random.default_rng(0).standard_normal((3, 2, 4))
    _, cache = F.batch_norm(x.astype("float32"), *np.ones((2, 2), "float32"))
    dx, *_ = F.batch_norm_backward(x, cache)
    assert dx.dtype == "float64" and dx.shape == x.shape
