import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import classified, seeds

from tinyvit import functional as F
from tinyvit import gradcheck

SMOOTHING = st.sampled_from([0.0, 0.1, 1.0])


@given(case=classified(), smoothing=SMOOTHING, soft=st.booleans(), seed=seeds())
def test_cross_entropy_gradients_match_the_complex_step(case, smoothing, soft, seed):
    logits, targets = case
    if soft:
        targets = np.random.default_rng(seed).dirichlet(np.ones(logits.shape[1]), len(logits))
    report = gradcheck.check(
        lambda logits: F.cross_entropy(logits, targets, smoothing), F.cross_entropy_backward, (logits,)
    )
    assert report.max_error < 1e-10, report


@given(case=classified(), smoothing=SMOOTHING)
def test_the_gradient_sums_to_zero_over_the_classes(case, smoothing):
    _, cache = F.cross_entropy(*case, smoothing)
    np.testing.assert_allclose(F.cross_entropy_backward(1.0, cache).sum(1), 0, atol=1e-15)


@given(case=classified(), shift=st.floats(-1e3, 1e3), smoothing=SMOOTHING)
def test_cross_entropy_is_invariant_to_a_shift_of_the_logits(case, shift, smoothing):
    logits, targets = case
    expected, _ = F.cross_entropy(logits, targets, smoothing)
    assert F.cross_entropy(logits + shift, targets, smoothing)[0] == pytest.approx(expected, abs=1e-10)


@given(classified())
def test_labels_and_their_one_hot_probabilities_give_the_same_loss(case):
    logits, labels = case
    one_hot = np.eye(logits.shape[1])[labels]
    assert F.cross_entropy(logits, one_hot, 0.1)[0] == pytest.approx(F.cross_entropy(logits, labels, 0.1)[0], rel=1e-14)


@given(classified())
def test_the_loss_is_the_mean_of_minus_the_log_of_the_right_probability(case):
    logits, labels = case
    probs, _ = F.softmax(logits)
    expected = -np.log(probs[np.arange(len(labels)), labels]).mean()
    assert F.cross_entropy(logits, labels)[0] == pytest.approx(expected, rel=1e-12, abs=1e-14)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_huge_logits_give_a_finite_loss_and_gradient(dtype):
    logits = np.array([[1e4, -1e4, 0], [-1e4, 1e4, 0]], dtype)
    loss, cache = F.cross_entropy(logits, np.array([1, 1]))
    assert loss == 1e4
    np.testing.assert_array_equal(F.cross_entropy_backward(1.0, cache), [[0.5, -0.5, 0], [0, 0, 0]])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("dloss", [1.0, np.float64(1), np.float32(1), np.array(1, "float32")])
def test_loss_and_gradient_have_the_dtype_of_the_logits(dtype, dloss):
    loss, cache = F.cross_entropy(np.ones((2, 3), dtype), np.full((2, 3), 1 / 3), 0.1)
    assert loss.dtype == dtype
    assert F.cross_entropy_backward(dloss, cache).dtype == dtype


def test_a_class_with_probability_zero_costs_nothing_unless_it_is_the_target():
    loss, cache = F.cross_entropy(np.array([[0.0, -np.inf, 0.0]]), np.array([0]))
    assert loss == pytest.approx(np.log(2))
    np.testing.assert_array_equal(F.cross_entropy_backward(1.0, cache), [[-0.5, 0, 0.5]])
    assert F.cross_entropy(np.array([[0.0, -np.inf, 0.0]]), np.array([1]))[0] == np.inf


@pytest.mark.parametrize("labels", [[0, 3], [-1, 0]])
def test_labels_out_of_range_are_named(labels):
    with pytest.raises(ValueError, match=f"expected labels from 0 to 2, got {min(labels)} to {max(labels)}"):
        F.cross_entropy(np.ones((2, 3)), np.array(labels))


@pytest.mark.parametrize(
    "targets", [np.zeros((2, 4)), np.zeros(3, int), np.zeros(2), np.zeros((2, 3), int), np.zeros((2, 1))]
)
def test_targets_of_another_kind_are_named(targets):
    with pytest.raises(ValueError, match="expected targets as ints"):
        F.cross_entropy(np.ones((2, 3)), targets)


@pytest.mark.parametrize("shape", [(0, 3), (3,), (2, 3, 4)])
def test_logits_of_another_shape_are_named(shape):
    with pytest.raises(ValueError, match="expected logits"):
        F.cross_entropy(np.ones(shape), np.zeros(shape[:1], int))


@pytest.mark.parametrize("smoothing", [-0.1, 1.1])
def test_label_smoothing_outside_zero_to_one_is_refused(smoothing):
    with pytest.raises(ValueError, match="label_smoothing"):
        F.cross_entropy(np.ones((2, 3)), np.array([0, 1]), smoothing)
