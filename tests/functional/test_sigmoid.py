import numpy as np
import pytest
from hypothesis import given
from scipy.special import expit
from strategies import seeds, tokens

from tinyvit import functional as F
from tinyvit import gradcheck

BOTH = pytest.mark.parametrize("operation", [F.sigmoid, F.silu])


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
