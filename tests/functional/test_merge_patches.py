import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import SIZES, normals, seeds

from tinyvit import functional as F
from tinyvit import gradcheck

GRIDS = st.tuples(SIZES, st.integers(1, 6), st.integers(1, 6), SIZES).flatmap(lambda shape: normals(shape))


@given(drawn=GRIDS, seed=seeds())
def test_gradients_match_the_complex_step(drawn, seed):
    report = gradcheck.check(F.merge_patches, F.merge_patches_backward, drawn, directions=3, seed=seed)
    assert report.max_error < 1e-10, report


@given(drawn=GRIDS)
def test_four_neighbours_lie_side_by_side_column_after_column(drawn):
    (x,) = drawn
    B, H, W, D = x.shape
    padded = np.pad(x, ((0, 0), (0, H % 2), (0, W % 2), (0, 0)))
    y, _ = F.merge_patches(x)
    for i, j in np.ndindex(y.shape[1:3]):
        square = padded[:, 2 * i : 2 * i + 2, 2 * j : 2 * j + 2]
        np.testing.assert_array_equal(y[:, i, j], square.transpose(0, 2, 1, 3).reshape(B, 4 * D))


def test_tokens_that_are_in_no_grid_are_refused():
    with pytest.raises(ValueError, match=r"expected tokens in a grid, x \(B, H, W, D\), got \(2, 3, 4\)"):
        F.merge_patches(np.ones((2, 3, 4)))
