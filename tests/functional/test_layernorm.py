
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import normals, seeds, tokens

from tinyvit import functional as F
from tinyvit import gradcheck


@given(x=tokens(), seed=seeds())
def test_layernorm_gradients_match_the_complex_step(x, seed):
    weight, bias = np.random.default_rng(seed).standard_normal((2, x.shape[-1]))
    report = gradcheck.check(F.layernorm, F.layernorm_backward, (x, weight, bias), seed=seed)
    assert report.max_error < 1e-10, report


@given(x=tokens(min_width=2))
def test_layernorm_gives_every_token_mean_zero_and_variance_one(x):
    D = x.shape[-1]
    y, _ = F.layernorm(x, np.ones(D), np.zeros(D), eps=0.0)
    np.testing.assert_allclose(y.mean(-1), 0, atol=1e-9)
    np.testing.assert_allclose((y * y).mean(-1), 1, atol=1e-9)


@given(arrays=normals((2, 3, 8), (8,), (8,), dtype="float64"), shift=st.floats(-100, 100))
def test_layernorm_is_invariant_to_a_shift_of_its_input(arrays, shift):
    x, weight, bias = arrays
    np.testing.assert_allclose(F.layernorm(x + shift, weight, bias)[0], F.layernorm(x, weight, bias)[0], atol=1e-9)


@given(arrays=normals((2, 3, 8), (8,), (8,), dtype="float64"), scale=st.floats(1e-3, 1e3))
def test_layernorm_without_eps_is_invariant_to_a_positive_scale(arrays, scale):
    x, weight, bias = arrays
    expected, _ = F.layernorm(x, weight, bias, eps=0.0)
    np.testing.assert_allclose(F.layernorm(scale * x, weight, bias, eps=0.0)[0], expected, atol=1e-9)


def test_layernorm_keeps_its_digits_where_the_mean_is_large():
    x = np.random.default_rng(0).standard_normal((4, 64))
    ones, zeros = np.ones(64), np.zeros(64)
    expected, _ = F.layernorm(x, ones, zeros)
    # E[x²] − E[x]² would be off by 1e-4 here
    np.testing.assert_allclose(F.layernorm(x + 1e6, ones, zeros)[0], expected, atol=1e-8)


def test_layernorm_of_a_constant_is_its_bias():
    y, _ = F.layernorm(np.full((2, 3), 7.0), np.ones(3), np.arange(3.0))
    np.testing.assert_array_equal(y, [np.arange(3.0)] * 2)


@pytest.mark.parametrize("weight, bias", [(1, 5), (5, 1), (4, 5)])
def test_layernorm_refuses_to_broadcast(weight, bias):
    with pytest.raises(ValueError, match="layernorm: expected x .* with D > 0, got"):
        F.layernorm(np.ones((2, 5)), np.ones(weight), np.ones(bias))


@given(arrays=normals((2, 3, 8), (8,), dtype="float64"), scale=st.floats(1e-3, 1e3))
def test_rmsnorm_is_the_layernorm_of_rows_without_a_mean_and_invariant_to_their_scale(arrays, scale):
    x, weight = arrays
    x = x - x.mean(-1, keepdims=True)
    expected, _ = F.layernorm(x, weight, np.zeros(8), eps=0.0)
    np.testing.assert_allclose(F.rmsnorm(scale * x, weight, eps=0.0)[0], expected, atol=1e-9)


@pytest.mark.parametrize("shape", [(2, 5), (2, 0), ()])
def test_rmsnorm_refuses_to_broadcast(shape):
    with pytest.raises(ValueError, match="rmsnorm: expected x .* with D > 0, got"):
        F.rmsnorm(np.ones(shape), np.ones(1))
