import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import SIZES, normals, seeds

from tinyvit import functional as F
from tinyvit import gradcheck


@given(drawn=st.tuples(*[SIZES] * 4).flatmap(lambda s: normals(s, s[:2], dtype="float64")), seed=seeds())
def test_gradients_match_the_complex_step_and_each_map_has_its_factor(drawn, seed):
    x, weight = drawn
    y, _ = F.scale_channels(x, weight)
    for b, c in np.ndindex(weight.shape):
        np.testing.assert_array_equal(y[b, c], x[b, c] * weight[b, c])
    report = gradcheck.check(F.scale_channels, F.scale_channels_backward, drawn, directions=3, seed=seed)
    assert report.max_error < 1e-10, report


def test_factors_of_another_shape_are_refused():
    with pytest.raises(ValueError, match=r"expected x .* and weight \(B, C\), got \(2, 3, 4, 4\) and \(3,\)"):
        F.scale_channels(np.ones((2, 3, 4, 4)), np.ones(3))
