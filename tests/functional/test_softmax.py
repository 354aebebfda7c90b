import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from strategies import tokens

from tinyvit import functional as F
from tinyvit import gradcheck
from tinyvit.functional.softmax import log_softmax


@given(x=tokens())
def test_softmax_gradients_match_the_complex_step(x):
    report = gradcheck.check(F.softmax, F.softmax_backward, (x,))
    assert report.max_error < 1e-10, report


@given(x=tokens())
def test_rows_of_a_softmax_sum_to_one(x):
    probs, _ = F.softmax(x)
    assert (probs > 0).all()
    np.testing.assert_allclose(probs.sum(-1), 1, rtol=1e-14)


@given(x=tokens(), shift=st.floats(-1e3, 1e3))
def test_softmax_is_invariant_to_a_shift(x, shift):
    np.testing.assert_allclose(F.softmax(x + shift)[0], F.softmax(x)[0], rtol=1e-11)


@given(x=tokens())
def test_the_gradient_through_a_softmax_sums_to_zero_over_the_row(x):
    _, cache = F.softmax(x)
    np.testing.assert_allclose(F.softmax_backward(np.cos(3 * x), cache).sum(-1), 0, atol=1e-14)


def test_softmax_of_huge_scores_picks_the_largest():
    probs, _ = F.softmax(np.float32([[1e4, -1e4, 9e3]]))
    np.testing.assert_array_equal(probs, [[1, 0, 0]])


def test_a_score_of_minus_infinity_has_probability_zero():
    probs, cache = F.softmax(np.array([[0.0, -np.inf, 0.0]]))
    np.testing.assert_array_equal(probs, [[0.5, 0, 0.5]])
    assert F.softmax_backward(np.array([[1.0, 2.0, 3.0]]), cache)[0, 1] == 0


def test_log_softmax_neither_overflows_nor_underflows():
    np.testing.assert_array_equal(log_softmax(np.array([[1e5, 0.0]])), [[0, -1e5]])


@given(x=tokens())
def test_log_softmax_is_the_logarithm_of_softmax(x):
    np.testing.assert_allclose(np.exp(log_softmax(x)), F.softmax(x)[0], rtol=1e-12, atol=1e-300)
