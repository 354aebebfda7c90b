import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import normals

from tinyvit import functional as F

SHAPES = st.lists(st.integers(1, 6), min_size=1, max_size=4).map(tuple)


@given(SHAPES.flatmap(lambda shape: normals(shape, shape, dtype="float32")), st.sampled_from([1.0, 30.0, 1e4, 1e30]))
def test_the_kernel_is_the_reference_to_a_float32s_last_digits(arrays, scale):
    x, dy = arrays
    x = x * np.float32(scale)
    probs, cache = F.softmax(x)
    expected, expected_cache = F.softmax.reference(x)
    assert probs.dtype == "float32" and probs.shape == x.shape
    # exp's argument is rounded to the digits that its size leaves.
    np.testing.assert_allclose(probs, expected, rtol=2e-5, atol=1e-7)
    gradient, plain = F.softmax_backward(dy, cache), F.softmax_backward.reference(dy, expected_cache)
    np.testing.assert_allclose(gradient, plain, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("spread", [39.0, 41.0, 80.0, 200.0])
def test_both_algorithms_agree_where_they_meet(spread):
    x = np.linspace(-spread, spread, 64, dtype="float32").reshape(2, 32)
    np.testing.assert_allclose(F.softmax(x)[0], F.softmax.reference(x.astype("float64"))[0], rtol=2e-5, atol=1e-37)


def test_rows_far_below_the_others_keep_their_probabilities():
    x = np.array([[1e4, 1e4], [-1e4, -1e4], [-39, -39]], "float32")
    np.testing.assert_array_equal(F.softmax(x)[0], np.full((3, 2), 0.5))


def test_nan_stays_in_its_row():
    with np.errstate(invalid="ignore"):
        probs, _ = F.softmax(np.array([[np.nan, 1], [1, 1], [-np.inf, 1]], "float32"))
    assert np.isnan(probs[0]).all()
    np.testing.assert_array_equal(probs[1:], [[0.5, 0.5], [0, 1]])


@pytest.mark.parametrize("shape", [(0,), (2, 0), (0, 3)])
def test_an_empty_array_keeps_its_shape(shape):
    x = np.ones(shape, "float32")
    if shape[-1]:
        probs, cache = F.softmax(x)
        assert probs.shape == F.softmax_backward(x, cache).shape == shape
