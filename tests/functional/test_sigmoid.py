import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit
from strategies import seeds, tokens

from tinyvit import functional as F
from tinyvit import gradcheck

BOTH = pytest.mark.parametrize("operation", [F.sigmoid, F.silu])
sides = st.tuples(st.integers(1, 3), st.integers(1, 4), st.integers(1, 5))


@BOTH
@given(x=tokens(), seed=seeds())
def test_gradients_match_the_complex_step(operation, x, seed):
    report = gradcheck.check(operation, operation.backward, (x,), seed=seed)
    assert report.max_error < 1e-10, report


@given(x=tokens())
def test_they_are_scipys_logistic_function_and_x_times_it(x):
    np.testing.assert_allclose(F.sigmoid(x)[0], expit(x), rtol=1e-13, atol=1e-15)
    np.testing.assert_allclose(F.silu(x)[0], x * expit(x), rtol=1e-13, atol=1e-15)


def test_small_results_keep_their_digits():
    x = np.linspace(-80, 5, 200, dtype="float32")
    np.testing.assert_allclose(F.sigmoid(x)[0], expit(x.astype("float64")), rtol=1e-6)


def test_large_numbers_overflow_nowhere():
    x = np.array([-1e30, -1000, 0, 100, 1e30], "float32")
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        y, cache = F.sigmoid(x)
        np.testing.assert_array_equal(y, [0, 0, 0.5, 1, 1])
        np.testing.assert_array_equal(F.sigmoid_backward(np.ones(5, "float32"), cache), [0, 0, 0.25, 0, 0])
        np.testing.assert_array_equal(F.silu(x)[0], [0, 0, 0, 100, np.float32(1e30)])


@given(shape=sides, seed=seeds())
def test_swiglu_gates_one_array_by_the_silu_of_the_other(shape, seed):
    gate, up = 3 * np.random.default_rng(seed).standard_normal((2, *shape))
    y, _ = F.swiglu(gate, up)
    np.testing.assert_allclose(y, F.silu(gate)[0] * up, rtol=1e-13)
    report = gradcheck.check(F.swiglu, F.swiglu_backward, (gate, up), seed=seed)
    assert report.max_error < 1e-10, report


@given(shape=sides, seed=seeds())
def test_layer_scale_is_a_product_with_a_sum_as_its_gradient(shape, seed):
    x, dy = np.random.default_rng(seed).standard_normal((2, *shape))
    weight = np.random.default_rng(seed + 1).standard_normal(shape[-1])
    y, cache = F.layer_scale(x, weight)
    np.testing.assert_array_equal(y, x * weight)
    np.testing.assert_allclose(F.layer_scale_backward(dy, cache)[1], (dy * x).sum((0, 1)), rtol=1e-12, atol=1e-13)
    report = gradcheck.check(F.layer_scale, F.layer_scale_backward, (x, weight), seed=seed)
    assert report.max_error < 1e-10, report


@pytest.mark.parametrize("call, message", [
    (lambda: F.swiglu(np.ones((2, 3)), np.ones(3)), r"swiglu: expected .* of one shape, got \(2, 3\) and \(3,\)"),
    (lambda: F.layer_scale(np.ones((2, 3)), np.ones(2)), r"layer_scale: expected .* got \(2, 3\) and \(2,\)"),
])  # fmt: skip
def test_what_does_not_fit_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
