import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import seeds, tokens

from tinyvit import functional as F
from tinyvit import gradcheck


@given(x=tokens(), seed=seeds())
def test_prepend_token_gradients_match_the_complex_step(x, seed):
    token = np.random.default_rng(seed).standard_normal((1, 1, x.shape[-1]))
    report = gradcheck.check(F.prepend_token, F.prepend_token_backward, (x, token))
    assert report.max_error < 1e-10, report


@given(x=tokens(), seed=seeds())
def test_every_sample_gets_the_same_token_in_front(x, seed):
    token = np.random.default_rng(seed).standard_normal((1, 1, x.shape[-1]))
    y, _ = F.prepend_token(x, token)
    np.testing.assert_array_equal(y[:, 1:], x)
    np.testing.assert_array_equal(F.pool_token(y)[0], np.repeat(token[0], len(x), axis=0))


@given(x=tokens())
def test_pool_token_gradients_match_the_complex_step(x):
    report = gradcheck.check(F.pool_token, F.pool_token_backward, (x,))
    assert report.max_error < 1e-10, report


@given(x=tokens(), prefix=st.integers(0, 2), seed=seeds())
def test_pool_mean_gradients_match_the_complex_step(x, prefix, seed):
    x = np.concatenate([np.ones((len(x), prefix, x.shape[-1])), x], axis=1)
    report = gradcheck.check(F.pool_mean, F.pool_mean_backward, (x, prefix))
    assert report.max_error < 1e-10, report


@given(x=tokens(), seed=seeds())
def test_pool_mean_sees_neither_the_class_token_nor_the_order_of_the_patches(x, seed):
    generator = np.random.default_rng(seed)
    expected, _ = F.pool_mean(np.concatenate([0 * x[:, :1], x], axis=1))
    np.testing.assert_allclose(expected, x.mean(1), atol=1e-14)
    shuffled = np.concatenate([x[:, :1] + 9, x[:, generator.permutation(x.shape[1])]], axis=1)
    np.testing.assert_allclose(F.pool_mean(shuffled)[0], expected, atol=1e-14)


def test_a_token_of_another_width_is_refused():
    with pytest.raises(ValueError, match=r"expected a token \(1, 1, 4\), got \(1, 1, 5\)"):
        F.prepend_token(np.ones((2, 3, 4)), np.ones((1, 1, 5)))
