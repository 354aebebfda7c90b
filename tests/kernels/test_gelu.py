import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import ndtr
from strategies import normals, tokens

from tinyvit import functional as F
from tinyvit.functional.gelu import GeluCache
from tinyvit.kernels.chunks import CHUNK


@given(x=tokens(dtype="float32"), dy=st.floats(-3, 3, width=32))
def test_the_kernel_is_its_plain_text_to_a_float32s_last_digits(x, dy):
    dy = np.full(x.shape, dy, "float32")
    y, cache = F.gelu(x)
    expected, expected_cache = F.gelu.reference(x)
    assert y.dtype == cache.cdf.dtype == "float32"
    np.testing.assert_allclose(y, expected, rtol=1e-6, atol=3e-7)
    np.testing.assert_allclose(
        F.gelu_backward(dy, cache), F.gelu_backward.reference(dy, expected_cache), rtol=1e-6, atol=1e-6
    )


def test_the_distribution_function_is_right_everywhere_to_a_unit_in_the_last_place():
    x = np.concatenate([np.linspace(-40, 40, 400_001), 10.0 ** np.arange(-38, 39)]).astype("float32")
    _, cache = F.gelu(x)
    assert np.max(np.abs(cache.cdf - ndtr(x.astype("float64")))) < 1.3e-7
    assert (np.diff(cache.cdf[:400_001]) > -1.3e-7).all()


def test_values_that_are_no_numbers_stay_so_and_infinities_warn_of_nothing_but_themselves():
    with np.errstate(invalid="ignore"):
        x = np.array([np.nan, np.inf, -np.inf, 3e38, -3e38], "float32")
        y, cache = F.gelu(x)
        expected, _ = F.gelu.reference(x)
        dx = F.gelu_backward(np.ones_like(x), cache)
    np.testing.assert_array_equal(y, expected)
    assert np.isnan(dx[0]) and dx[3] == 1 and dx[4] == 0


@given(normals((3, CHUNK // 2 + 1), (3, CHUNK // 2 + 1), dtype="float32"))
def test_the_last_piece_may_be_shorter_and_the_memory_order_any(arrays):
    x, dy = arrays
    y, cache = F.gelu(x)
    np.testing.assert_allclose(y, F.gelu.reference(x)[0], rtol=1e-6, atol=3e-7)
    expected = F.gelu_backward.reference(dy, GeluCache(x, cache.cdf))
    np.testing.assert_allclose(F.gelu_backward(dy, cache), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3)])
def test_a_number_or_nothing_at_all_keeps_its_shape(shape):
    y, cache = F.gelu(np.ones(shape, "float32"))
    assert y.shape == cache.cdf.shape == F.gelu_backward(y, cache).shape == shape
