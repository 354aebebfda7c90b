from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import seeds

from tinyvit import functional as F
from tinyvit import gradcheck

TEMPERATURES = st.sampled_from([0.5, 1.0, 3.0])


@st.composite
def logits(draw):
    shape = draw(st.integers(1, 4)), draw(st.integers(1, 5))
    return np.random.default_rng(draw(seeds())).standard_normal((2, *shape)) * draw(st.sampled_from([1, 10]))


@given(drawn=logits(), temperature=TEMPERATURES, seed=seeds())
def test_gradients_match_the_complex_step(drawn, temperature, seed):
    student, teacher = drawn
    forward = partial(F.distillation, teacher=teacher, temperature=temperature)
    report = gradcheck.check(forward, F.distillation_backward, (student,), seed=seed)
    assert report.max_error < 1e-10, report


@given(drawn=logits(), temperature=TEMPERATURES)
def test_it_is_the_divergence_of_the_tempered_probabilities(drawn, temperature):
    student, teacher = drawn
    q, p = (F.softmax(x / temperature)[0] for x in (student, teacher))
    expected = temperature**2 * (p * np.log(p / q)).sum() / student.size
    np.testing.assert_allclose(F.distillation(student, teacher, temperature)[0], expected, rtol=1e-9, atol=1e-12)
    assert F.distillation(student, teacher, temperature)[0] > -1e-12
    assert abs(F.distillation(teacher + 3, teacher, temperature)[0]) < 1e-12


def test_a_class_that_the_teacher_excludes_costs_nothing():
    student, teacher = np.array([[1.0, 2.0, -900.0]]), np.array([[1.0, 2.0, -9000.0]])
    loss, cache = F.distillation(student, teacher)
    assert loss == 0 and not F.distillation_backward(1.0, cache).any()


@pytest.mark.parametrize("student, teacher, temperature, message", [
    (np.ones((2, 3)), np.ones((2, 4)), 1.0, r".* of the same shape, .* got \(2, 3\) and float64 \(2, 4\)"),
    (np.ones((2, 3)), np.ones((2, 3), int), 1.0, r".* floating-point numbers, got \(2, 3\) and int64"),
    (np.ones((0, 3)), np.ones((0, 3)), 1.0, "expected logits"),
    (np.ones((2, 3)), np.ones((2, 3)), 0.0, "expected a temperature above 0, got 0.0"),
])  # fmt: skip
def test_what_does_not_fit_is_refused(student, teacher, temperature, message):
    with pytest.raises(ValueError, match=f"distillation: {message}"):
        F.distillation(student, teacher, temperature)
