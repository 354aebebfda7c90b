"""Vectors of length 1, and the loss between views."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import seeds

from tinyvit import functional as F
from tinyvit import gradcheck

shapes = st.tuples(st.integers(1, 3), st.integers(1, 4), st.integers(1, 5))


@st.composite
def views(draw):
    """Logits (B, V, K) of a student and probabilities (B, T, K) of a teacher."""
    B, V, K = draw(st.integers(1, 3)), draw(st.integers(2, 5)), draw(st.integers(1, 5))
    generator = np.random.default_rng(draw(seeds()))
    probs, _ = F.softmax(3 * generator.standard_normal((B, draw(st.integers(1, min(2, V))), K)))
    return generator.standard_normal((B, V, K)), probs


@given(shape=shapes, seed=seeds(), size=st.sampled_from([1e-3, 1, 1e3]))
def test_gradients_of_vectors_of_length_1_match_the_complex_step(shape, seed, size):
    x = size * np.random.default_rng(seed).standard_normal(shape)
    y, cache = F.l2_normalise(x)
    np.testing.assert_allclose((y * y).sum(-1), 1, rtol=1e-13)
    report = gradcheck.check(F.l2_normalise, F.l2_normalise_backward, (x,), seed=seed)
    assert report.max_error < 1e-10, report
    along = (F.l2_normalise_backward(np.ones(shape), cache) * x).sum(-1)
    np.testing.assert_allclose(along, 0, atol=1e-12)  # a longer x gives the same y


@given(shape=shapes, seed=seeds())
def test_a_vector_that_is_hardly_there_is_divided_by_the_smallest_length(shape, seed):
    x = 1e-14 * np.random.default_rng(seed).random(shape)
    y, cache = F.l2_normalise(x)
    np.testing.assert_allclose(y, x / 1e-12, rtol=1e-13)
    np.testing.assert_allclose(F.l2_normalise_backward(np.ones(shape), cache), 1e12, rtol=1e-13)
    assert not F.l2_normalise(0 * x)[0].any()


@given(drawn=views(), temperature=st.sampled_from([0.1, 1.0, 3.0]), seed=seeds())
def test_gradients_of_the_loss_match_the_complex_step(drawn, temperature, seed):
    logits, teacher = drawn
    forward = partial(F.dino_loss, teacher=teacher, temperature=temperature)
    report = gradcheck.check(forward, F.dino_loss_backward, (logits,), seed=seed)
    assert report.max_error < 1e-10, report


@given(drawn=views(), temperature=st.sampled_from([0.1, 1.0]))
def test_the_loss_is_the_mean_cross_entropy_over_pairs_of_different_views(drawn, temperature):
    logits, teacher = drawn
    log_q = np.log(F.softmax(logits / temperature)[0])
    pairs = [-(teacher[:, t] * log_q[:, v]).sum(-1) for t in range(teacher.shape[1])
             for v in range(logits.shape[1]) if t != v]  # fmt: skip
    np.testing.assert_allclose(F.dino_loss(logits, teacher, temperature)[0], np.mean(pairs), rtol=1e-10, atol=1e-14)


@given(drawn=views(), seed=seeds())
def test_the_loss_depends_on_no_view_that_the_only_teacher_has_seen(drawn, seed):
    logits, teacher = drawn
    loss, cache = F.dino_loss(logits, teacher[:, :1])
    changed = logits.copy()
    changed[:, 0] = np.random.default_rng(seed).standard_normal(changed[:, 0].shape)
    assert F.dino_loss(changed, teacher[:, :1])[0] == loss
    assert not F.dino_loss_backward(1.0, cache)[:, 0].any()


def test_a_student_that_agrees_has_the_teachers_entropy_as_its_loss_and_no_gradient():
    logits = np.repeat(np.random.default_rng(0).standard_normal((3, 1, 5)), 4, axis=1)
    teacher, _ = F.softmax(logits[:, :2])
    loss, cache = F.dino_loss(logits, teacher, 1.0)
    np.testing.assert_allclose(loss, -(teacher * np.log(teacher)).sum(-1).mean(), rtol=1e-13)
    np.testing.assert_allclose(F.dino_loss_backward(1.0, cache), 0, atol=1e-16)


logits = np.ones((2, 3, 4))


@pytest.mark.parametrize("student, teacher, temperature, message", [
    (logits, np.ones((2, 4, 4)), 0.1, r"expected logits \(B, V, K\).* got \(2, 3, 4\) and float64 \(2, 4, 4\)"),
    (logits, np.ones((2, 2, 5)), 0.1, r"got \(2, 3, 4\) and float64 \(2, 2, 5\)"),
    (logits, np.ones((1, 2, 4)), 0.1, r"got \(2, 3, 4\) and float64 \(1, 2, 4\)"),
    (logits, np.ones((2, 2, 4), int), 0.1, r"floating-point numbers, got \(2, 3, 4\) and int64"),
    (logits[:, :1], np.ones((2, 1, 4)), 0.1, "at least 2 views"),
    (logits[0], np.ones((2, 2, 4)), 0.1, r"got \(3, 4\)"),
    (logits, np.ones((2, 2, 4)), 0.0, "expected a temperature above 0, got 0.0"),
])  # fmt: skip
def test_what_does_not_fit_is_refused(student, teacher, temperature, message):
    with pytest.raises(ValueError, match=f"dino_loss: .*{message}"):
        F.dino_loss(student, teacher, temperature)
