from math import erf, sqrt, tanh

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import tokens

from tinyvit import functional as F
from tinyvit import gradcheck

REAL = st.floats(-30, 30)


@given(x=tokens())
def test_gelu_gradients_match_the_complex_step(x):
    report = gradcheck.check(F.gelu, F.gelu_backward, (x,))
    assert report.max_error < 1e-10, report


@given(x=tokens())
def test_gelu_tanh_gradients_match_the_complex_step(x):
    report = gradcheck.check(F.gelu_tanh, F.gelu_tanh_backward, (x,))
    assert report.max_error < 1e-10, report


@given(x=tokens())
def test_quick_gelu_gradients_match_the_complex_step(x):
    report = gradcheck.check(F.quick_gelu, F.quick_gelu_backward, (x,))
    assert report.max_error < 1e-10, report


@given(REAL)
def test_quick_gelu_is_its_formula_and_stays_within_a_fiftieth_of_the_exact_one(x):
    y = F.quick_gelu(np.array([x]))[0][0]
    assert y == pytest.approx(0.5 * x * (1 + tanh(0.851 * x)), rel=1e-12, abs=1e-14)
    assert abs(y - F.gelu(np.array([x]))[0][0]) < 0.0204


@given(REAL)
def test_gelu_is_x_times_the_normal_distribution_function(x):
    assert F.gelu(np.array([x]))[0][0] == pytest.approx(x * 0.5 * (1 + erf(x / sqrt(2))), rel=1e-13, abs=1e-15)


@given(REAL)
def test_gelu_of_x_minus_gelu_of_minus_x_is_x(x):
    y, _ = F.gelu(np.array([x, -x]))
    assert y[0] - y[1] == pytest.approx(x, rel=1e-14, abs=1e-300)


@given(REAL)
def test_the_tanh_form_stays_within_half_a_thousandth_of_the_exact_one(x):
    x = np.array([x])
    assert abs(F.gelu_tanh(x)[0] - F.gelu(x)[0]) < 4.8e-4


@given(REAL)
def test_gelu_tanh_is_its_formula(x):
    expected = 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x**3)))
    assert F.gelu_tanh(np.array([x]))[0][0] == pytest.approx(expected, rel=1e-12, abs=1e-14)


@pytest.mark.parametrize("op", [F.gelu, F.gelu_tanh, F.quick_gelu])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_gelu_of_large_inputs_is_zero_or_the_identity(op, dtype):
    x = np.array([-1e6, -1e4, 1e4, 1e6], dtype)
    y, cache = op(x)
    np.testing.assert_array_equal(y, [0, 0, 1e4, 1e6])
    np.testing.assert_array_equal(op.backward(np.ones_like(x), cache), [0, 0, 1, 1])
