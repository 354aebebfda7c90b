import numpy as np
from hypothesis import given
from strategies import normals, seeds

from tinyvit import functional as F
from tinyvit import gradcheck


@given(arrays=normals((3, 4), dtype="float64"), seed=seeds())
def test_gradients_match_the_complex_step(arrays, seed):
    report = gradcheck.check(F.relu, F.relu_backward, arrays, seed=seed)
    assert report.max_error < 1e-10, report


@given(arrays=normals((3, 4)))
def test_positive_numbers_stay_and_negative_ones_become_zero(arrays):
    np.testing.assert_array_equal(F.relu(*arrays)[0], np.maximum(*arrays, 0), strict=True)


def test_infinity_and_nan_and_the_derivative_at_zero():
    x = np.array([-np.inf, -1, 0, 1, np.inf, np.nan])
    y, cache = F.relu(x)
    np.testing.assert_array_equal(y, [0, 0, 0, 1, np.inf, np.nan])
    np.testing.assert_array_equal(F.relu_backward(np.full(6, 2.0), cache), [0, 0, 0, 2, 2, 2])
