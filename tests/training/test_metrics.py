import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics as sklearn
from strategies import classified, seeds

from tinyvit import functional as F
from tinyvit.training.metrics import calibration_error, class_table, likeliest, measure


@given(case=classified())
def test_accuracy_loss_recall_and_precision_follow_their_definitions(case):
    logits, labels = case
    K, predicted = logits.shape[1], logits.argmax(1)
    m = measure(logits, labels)
    assert m.accuracy == (predicted == labels).mean()
    np.testing.assert_allclose(m.loss, F.cross_entropy(logits, labels)[0], rtol=1e-12)
    for k in range(K):
        of_class, taken_for = labels == k, predicted == k
        right = (of_class & taken_for).sum()
        np.testing.assert_equal(m.recall[k], right / of_class.sum() if of_class.any() else np.nan)
        np.testing.assert_equal(m.precision[k], right / taken_for.sum() if taken_for.any() else np.nan)
        np.testing.assert_array_equal(m.confusion[k], np.bincount(predicted[of_class], minlength=K))


@given(seed=seeds(), n=st.integers(1, 30), K=st.integers(6, 12))
def test_the_top_5_are_those_of_scikit_learn(seed, n, K):
    generator = np.random.default_rng(seed)
    logits, labels = generator.standard_normal((n, K)), generator.integers(0, K, n)
    expected = sklearn.top_k_accuracy_score(labels, logits, k=5, labels=range(K))
    np.testing.assert_allclose(measure(logits, labels).top5_accuracy, expected, rtol=1e-12)


def test_of_equal_logits_the_lower_class_comes_first():
    logits = np.array([[0.0, 2.0, 1.0, 2.0, 0.0, 1.0]])
    np.testing.assert_array_equal(likeliest(logits, 4), [[1, 3, 2, 5]])
    np.testing.assert_array_equal(likeliest(logits, 99), [[1, 3, 2, 5, 0, 4]])


# -- calibration ----------------------------------------------------------------------------------------------------


def test_gaps_are_taken_per_bin_and_not_per_image():
    """Two images with confidence 0.9, one right: |1/2 − 0.9|. Errors of opposite sign in two bins don't cancel."""
    assert calibration_error(np.array([0.9, 0.9]), np.array([True, False])) == pytest.approx(0.4)
    assert calibration_error(np.array([0.3, 0.9]), np.array([True, False])) == pytest.approx((0.7 + 0.9) / 2)


@given(seed=seeds(), n=st.integers(1, 60))
def test_the_calibration_error_is_the_sum_over_bins_of_the_paper(seed, n):
    generator = np.random.default_rng(seed)
    confidences, correct = generator.integers(0, 31, n) / 30, generator.random(n) < 0.5  # the edges of bins among them
    expected = 0
    for m in range(1, 16):
        inside = (confidences * 30 > 2 * (m - 1)) & (confidences * 30 <= 2 * m)
        if m == 1:
            inside |= confidences == 0
        if inside.any():
            expected += inside.sum() / n * abs(correct[inside].mean() - confidences[inside].mean())
    assert calibration_error(confidences, correct) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_logits_that_are_nan_or_infinite_are_refused_with_their_place(value):
    logits = np.zeros((4, 3))
    logits[2, 1] = value
    with pytest.raises(ValueError, match="logits of image 2 are NaN or infinite"):
        measure(logits, np.zeros(4, int))


def table_of(labels, predicted, K):
    """The lines of the table for the given labels and predictions."""
    metrics = measure(np.eye(K)[predicted], np.array(labels))
    return "\n".join(class_table([f"class {k}" for k in range(K)], metrics)).strip("\n").splitlines()


def test_each_class_lists_what_it_is_most_often_taken_for():
    assert table_of([0, 0, 0, 0, 1], [0, 2, 2, 1, 1], 3)[1:] == [
        "  class 0        4    25.00 %    100.00 %   class 2 (2)",
        "  class 1        1   100.00 %     50.00 %",
        "  class 2        0          –      0.00 %",
    ]


@pytest.mark.parametrize(("K", "lines"), [(20, 1 + 20), (21, 1 + 21), (100, 1 + 21)])
def test_of_many_classes_the_ten_worst_and_the_ten_best_are_shown(K, lines):
    labels = np.repeat(np.arange(K), 2)
    predicted = labels.copy()
    predicted[::2][: K // 2] = 0                                # the first half of the classes is half wrong
    table = table_of(labels, predicted, K)
    assert len(table) == lines
    assert (f"  … {K - 20} classes in between …" in table) == (K > 20)
    assert table[1].startswith("  class 1 ") and table[-1].startswith(f"  class {K - 1} ")
