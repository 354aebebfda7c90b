import numpy as np
from hypothesis import given
from strategies import tokens

from tinyvit import functional as F
from tinyvit import gradcheck


@given(x=tokens())
def test_tanh_gradients_match_the_complex_step(x):
    report = gradcheck.check(F.tanh, F.tanh_backward, (x,))
    assert report.max_error < 1e-10, report


@given(x=tokens())
def test_tanh_is_odd_and_bounded(x):
    y, _ = F.tanh(5 * x)
    np.testing.assert_array_equal(F.tanh(-5 * x)[0], -y)
    assert (np.abs(y) <= 1).all()
