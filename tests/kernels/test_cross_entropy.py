import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import classified

from tinyvit import functional as F


@given(case=classified(dtype="float32", scale=3.0), smoothing=st.sampled_from([0.0, 0.1, 1.0]), dense=st.booleans())
def test_the_kernel_is_the_reference_to_a_float32s_last_digits(case, smoothing, dense):
    logits, labels = case
    targets = np.eye(logits.shape[1])[labels] if dense else labels
    loss, cache = F.cross_entropy(logits, targets, smoothing)
    exact, exact_cache = F.cross_entropy.reference(logits.astype("float64"), targets, smoothing)
    assert loss.dtype == "float32" and loss.shape == ()
    np.testing.assert_allclose(loss, exact, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(cache.probs, exact_cache.probs, rtol=2e-6, atol=1e-7)
    gradient, expected = F.cross_entropy_backward(0.7, cache), F.cross_entropy_backward.reference(0.7, exact_cache)
    assert gradient.dtype == "float32"
    np.testing.assert_allclose(gradient, expected, rtol=1e-5, atol=1e-7)


def test_a_complex_gradient_is_taken_as_by_the_reference():
    _, cache = F.cross_entropy(np.float32([[1, 2], [3, -1]]), np.array([0, 1]))
    expected = F.cross_entropy_backward(1.0, cache)
    np.testing.assert_array_equal(F.cross_entropy_backward(1j, cache), 1j * expected)


def test_a_small_loss_far_from_zero_keeps_its_digits():
    loss, _ = F.cross_entropy(np.float32([[1e4 + 10, 1e4]]), np.array([0]))
    np.testing.assert_allclose(loss, np.log1p(np.exp(-10)), rtol=1e-3)


def test_an_impossible_class_costs_nothing_unless_it_is_the_target():
    loss, cache = F.cross_entropy(np.float32([[0, -np.inf]]), np.array([0]))
    assert loss == 0
    np.testing.assert_array_equal(F.cross_entropy_backward(1.0, cache), [[0, 0]])


def test_nan_makes_the_loss_nan():
    with np.errstate(invalid="ignore"):
        assert np.isnan(F.cross_entropy(np.float32([[np.nan, 0], [1, 0]]), np.array([0, 1]))[0])


@pytest.mark.parametrize("labels", [[3], [-1]])
def test_labels_out_of_range_are_refused(labels):
    with pytest.raises(ValueError, match="expected labels from 0 to 2"):
        F.cross_entropy(np.zeros((1, 3), "float32"), np.array(labels))
