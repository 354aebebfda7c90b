import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import laid_out, normals, seeds, tokens

from tinyvit import functional as F
from tinyvit.functional.chunks import CHUNK


def both(x, dy):
    """(y, dx) of the kernel and of the reference implementation in float64."""
    y, cache = F.gelu(x)
    exact, exact_cache = F.gelu.reference(x.astype("float64"))
    assert y.dtype == "float32"
    return (y, F.gelu_backward(dy, cache)), (exact, F.gelu_backward.reference(dy.astype("float64"), exact_cache))


@given(x=tokens(dtype="float32"), seed=seeds(), scale=st.sampled_from([0.1, 1.0, 5.0, 100.0]))
def test_the_kernel_is_the_reference_to_a_float32s_last_digits(x, seed, scale):
    dy = laid_out(np.random.default_rng(seed).standard_normal(x.shape, "float32"), "fortran")
    got, exact = both(np.float32(scale) * x, dy)
    np.testing.assert_allclose(got[0], exact[0], rtol=1e-6, atol=3e-7)
    np.testing.assert_allclose(got[1], exact[1], rtol=1e-6, atol=1e-6)


def test_it_is_right_everywhere_to_a_few_units_in_the_last_place():
    x = np.concatenate([np.linspace(-40, 40, 400_001), 10.0 ** np.arange(-38, 19)]).astype("float32")
    (y, slope), (exact, exact_slope) = both(x, np.ones_like(x))
    assert np.max(np.abs(y - exact) / np.maximum(np.abs(x), 1e-30)) < 2e-7  # Φ, and the rounding of a product
    assert np.max(np.abs(slope - exact_slope)) < 4e-7


def test_nan_stays_nan_and_infinities_warn_of_nothing_but_themselves():
    with np.errstate(invalid="ignore"):
        x = np.array([np.nan, np.inf, -np.inf, 3e38, -3e38], "float32")
        y, cache = F.gelu(x)
        expected, _ = F.gelu.reference(x)
        dx = F.gelu_backward(np.ones_like(x), cache)
    np.testing.assert_array_equal(y, expected)
    assert np.isnan(dx[0]) and dx[3] == 1 and dx[4] == 0


@given(normals((3, CHUNK // 2 + 1), (3, CHUNK // 2 + 1), dtype="float32"))
def test_the_last_piece_may_be_shorter_and_the_memory_order_any(arrays):
    got, exact = both(*arrays)
    np.testing.assert_allclose(got[0], exact[0], rtol=1e-6, atol=3e-7)
    np.testing.assert_allclose(got[1], exact[1], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3)])
def test_scalars_and_empty_arrays_keep_their_shape(shape):
    y, cache = F.gelu(np.ones(shape, "float32"))
    assert y.shape == F.gelu_backward(y, cache).shape == shape
