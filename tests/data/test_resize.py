import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import images_and_patch

from tinyvit.data.resize import areas, shrink


@given(images_and_patch())
def test_whole_factors_average_whole_blocks(drawn):
    x, (p, q) = drawn
    B, C, H, W = x.shape
    expected = x.reshape(B, C, H // p, p, W // q, q).mean((3, 5))
    np.testing.assert_allclose(shrink(x, (H // p, W // q)), expected, atol=1e-13)


@given(old=st.integers(1, 40), share=st.floats(0.01, 1))
def test_every_pixel_is_used_and_every_new_one_is_a_mean(old, share):
    new = max(1, round(share * old))
    weights = areas(old, new)
    assert weights.min() >= 0
    np.testing.assert_allclose(weights.sum(1), 1, atol=1e-12)
    np.testing.assert_allclose(weights.sum(0), new / old, atol=1e-12)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_dtype_stays_and_the_full_size_is_the_image_itself(dtype):
    x = np.ones((2, 1, 6, 4), dtype)
    assert shrink(x, (6, 4)) is x
    assert shrink(x, (3, 3)).dtype == dtype and shrink(x, (3, 3)).shape == (2, 1, 3, 3)


@pytest.mark.parametrize("size", [(0, 1), (7, 4), (6, 5)])
def test_an_image_is_not_enlarged(size):
    with pytest.raises(ValueError, match=r"at most 6×4 .* got \d×\d"):
        shrink(np.ones((1, 1, 6, 4)), size)
