import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import normals, seeds

from tinyvit import functional as F
from tinyvit import gradcheck

paddings = st.tuples(*[st.integers(0, 3)] * 4)


@given(arrays=normals((2, 3, 4, 5), dtype="float64"), padding=paddings, seed=seeds())
def test_gradients_of_zero_padding_match_the_complex_step(arrays, padding, seed):
    report = gradcheck.check(F.zero_pad2d, F.zero_pad2d_backward, (*arrays, padding), seed=seed)
    assert report.max_error < 1e-10, report


@given(arrays=normals((2, 3, 4, 5)), padding=paddings)
def test_zeros_are_where_they_were_asked_for_and_nothing_else_changes(arrays, padding):
    top, bottom, left, right = padding
    y, _ = F.zero_pad2d(*arrays, padding)
    np.testing.assert_array_equal(y, np.pad(arrays[0], ((0, 0), (0, 0), (top, bottom), (left, right))))


@pytest.mark.parametrize("padding", [(1, 1), (0, 0, -1, 0), (1, 1, 1, 1, 1)])
def test_padding_that_is_no_four_sides_is_refused(padding):
    with pytest.raises(ValueError, match=r"zero_pad2d: expected x \(B, C, H, W\) and padding \(top, bottom"):
        F.zero_pad2d(np.ones((1, 2, 3, 4)), padding)
