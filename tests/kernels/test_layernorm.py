import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import LAYOUTS, laid_out, seeds

from tinyvit import functional as F
from tinyvit.functional.chunks import CHUNK
from tinyvit.functional.layernorm import LayerNormCache


@st.composite
def cases(draw):
    """x and dy (..., D), weight and bias (D,), float32, in any memory order; often more rows than a piece has."""
    D = draw(st.integers(1, 9))
    rows = draw(st.sampled_from([(), (1,), (3,), (2, 5), (CHUNK // D + 3,), (2, 2 * CHUNK // D)]))
    generator, layouts = np.random.default_rng(draw(seeds())), st.sampled_from(LAYOUTS)
    shift = draw(st.sampled_from([0.0, 3.0, -100.0]))
    x, dy = (generator.standard_normal((*rows, D)).astype("float32") for _ in range(2))
    weight, bias = generator.standard_normal((2, D)).astype("float32")
    return laid_out(x + np.float32(shift), draw(layouts)), laid_out(dy, draw(layouts)), weight, bias


@given(cases())
def test_the_kernel_is_as_right_as_the_reference(case):
    x, dy, weight, bias = case
    y, cache = F.layernorm(x, weight, bias)
    exact, exact_cache = F.layernorm.reference(*(a.astype("float64") for a in (x, weight, bias)))
    assert y.dtype == cache.xhat.dtype == cache.rstd.dtype == "float32" and y.shape == x.shape
    assert (cache.xhat.shape, cache.rstd.shape) == (exact_cache.xhat.shape, exact_cache.rstd.shape)
    # With a mean of 100, x has five digits left.
    np.testing.assert_allclose(y, exact, rtol=1e-5, atol=2e-4 if abs(x).max() > 50 else 2e-5)
    # From the same cache, so that only the backward is compared.
    exact_cache = LayerNormCache(*(a.astype("float64") for a in (cache.xhat, cache.rstd, cache.weight)))
    expected = F.layernorm_backward.reference(dy.astype("float64"), exact_cache)
    for got, want in zip(F.layernorm_backward(dy, cache), expected, strict=True):
        assert got.dtype == "float32" and got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=2e-6 * max(1.0, abs(want).max()))


@given(cases())
def test_gradients_are_added_into_the_given_arrays_or_left_out(case):
    x, dy, weight, bias = case
    _, cache = F.layernorm(x, weight, bias)
    dx, dweight, dbias = F.layernorm_backward(dy, cache)
    total = np.ones_like(weight)
    left_out = F.layernorm_backward(dy, cache, into=(False, total))
    np.testing.assert_array_equal(left_out[0], dx)
    assert left_out[1] is None and left_out[2] is total
    np.testing.assert_array_equal(total, 1 + dbias)
    np.testing.assert_array_equal(F.layernorm_backward(dy, cache, into=(None, False))[1], dweight)


def test_a_large_mean_costs_no_more_digits_than_it_has_to():
    x = (1e4 + np.random.default_rng(0).standard_normal((50, 64))).astype("float32")
    y, _ = F.layernorm(x, np.ones(64, "float32"), np.zeros(64, "float32"))
    exact, _ = F.layernorm.reference(x.astype("float64"), np.ones(64), np.zeros(64))
    assert abs(y - exact).max() < 1e-4


def test_shapes_that_do_not_fit_are_refused_as_in_the_reference():
    with pytest.raises(ValueError, match="layernorm: expected x .* with D > 0, got"):
        F.layernorm(np.ones((2, 3), "float32"), np.ones(4, "float32"), np.ones(3, "float32"))
    assert F.layernorm(np.ones((0, 3), "float32"), np.ones(3, "float32"), np.ones(3, "float32"))[0].shape == (0, 3)


@pytest.mark.parametrize("eps", [1e-6, 1e-12])
def test_rows_of_one_number_never_give_nan(eps):
    numbers = np.random.default_rng(0).uniform(1e4, 1e6, (300, 1)).astype("float32")
    y, cache = F.layernorm(np.repeat(numbers, 768, 1), np.ones(768, "float32"), np.full(768, 2, "float32"), eps)
    assert np.isfinite(y).all()
    assert all(np.isfinite(gradient).all() for gradient in F.layernorm_backward(np.ones_like(y), cache))


def test_rows_of_many_numbers_keep_their_digits():
    x = np.random.default_rng(0).standard_normal((3, 50_000)).astype("float32")
    weight, bias = np.ones((2, 50_000), "float32")
    exact, _ = F.layernorm.reference(x.astype("float64"), np.ones(50_000), np.ones(50_000))
    np.testing.assert_allclose(F.layernorm(x, weight, bias)[0], exact, rtol=1e-6, atol=2e-6)


def test_gradients_over_very_many_rows_keep_their_digits():
    x, dy = np.random.default_rng(0).standard_normal((2, 1 << 17, 8)).astype("float32")
    weight, bias = np.ones((2, 8), "float32")
    _, cache = F.layernorm(x, weight, bias)
    _, _, dbias = F.layernorm_backward(dy, cache)
    np.testing.assert_allclose(dbias, dy.sum(0, dtype="float64"), rtol=0, atol=2e-4)
