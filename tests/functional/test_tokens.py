from functools import partial

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
def test_pool_mean_depends_on_neither_the_class_token_nor_the_order_of_the_patches(x, seed):
    generator = np.random.default_rng(seed)
    expected, _ = F.pool_mean(np.concatenate([0 * x[:, :1], x], axis=1))
    np.testing.assert_allclose(expected, x.mean(1), atol=1e-14)
    shuffled = np.concatenate([x[:, :1] + 9, x[:, generator.permutation(x.shape[1])]], axis=1)
    np.testing.assert_allclose(F.pool_mean(shuffled)[0], expected, atol=1e-14)


def test_a_token_of_another_width_is_refused():
    with pytest.raises(ValueError, match=r"a token \(1, 1, D\), got \(2, 3, 4\) and \(1, 1, 5\)"):
        F.prepend_token(np.ones((2, 3, 4)), np.ones((1, 1, 5)))


@st.composite
def tokens_and_index(draw):
    """Tokens (B, N, D) and, for each sample, some token indices in any order (B, n)."""
    x = draw(tokens())
    B, N, _ = x.shape
    n = draw(st.integers(1, N))
    return x, np.random.default_rng(draw(seeds())).permuted(np.tile(np.arange(N), (B, 1)), axis=1)[:, :n]


@given(tokens_and_index())
def test_take_tokens_gradients_match_the_complex_step(drawn):
    x, index = drawn
    report = gradcheck.check(partial(F.take_tokens, index=index), F.take_tokens_backward, (x,))
    assert report.max_error < 1e-10, report


@given(tokens_and_index())
def test_take_tokens_backward_adds_gradients_at_the_taken_positions(drawn):
    x, index = drawn
    y, cache = F.take_tokens(x, index)
    for sample, chosen in enumerate(index):
        np.testing.assert_array_equal(y[sample], x[sample][chosen])
    back = F.take_tokens_backward(y, cache)
    np.testing.assert_array_equal(F.take_tokens(back, index)[0], y)
    assert np.count_nonzero(back) == np.count_nonzero(y)


@pytest.mark.parametrize("shape", [(2,), (3, 1), (2, 1, 1)])
def test_an_index_of_another_shape_is_refused(shape):
    with pytest.raises(ValueError, match=r"expected an index \(2, n\) for tokens \(2, 3, 4\), got"):
        F.take_tokens(np.ones((2, 3, 4)), np.zeros(shape, int))


@given(x=tokens(), at=st.integers(0, 3), count=st.integers(1, 3), seed=seeds())
def test_inserted_tokens_lie_behind_the_first_and_get_the_sum_of_their_gradients(x, at, count, seed):
    at, (B, _, D) = min(at, x.shape[1]), x.shape
    token = np.random.default_rng(seed).standard_normal((1, count, D))
    y, _ = F.insert_tokens(x, token, at)
    np.testing.assert_array_equal(np.delete(y, range(at, at + count), axis=1), x)
    np.testing.assert_array_equal(y[:, at : at + count], np.repeat(token, B, axis=0))
    report = gradcheck.check(partial(F.insert_tokens, at=at), F.insert_tokens_backward, (x, token), seed=seed)
    assert report.max_error < 1e-10, report


@given(x=tokens(), seed=seeds(), data=st.data())
def test_the_first_tokens_lie_side_by_side_and_they_alone_get_a_gradient(x, seed, data):
    count = data.draw(st.integers(1, x.shape[1]))
    y, _ = F.first_tokens(x, count)
    np.testing.assert_array_equal(y, np.concatenate([x[:, i] for i in range(count)], axis=1))
    report = gradcheck.check(partial(F.first_tokens, count=count), F.first_tokens_backward, (x,), seed=seed)
    assert report.max_error < 1e-10, report


@pytest.mark.parametrize("shape, at, message", [
    ((1, 2, 5), 1, r"expected x \(B, N, D\) and token \(1, n, D\), got \(2, 3, 4\) and \(1, 2, 5\)"),
    ((2, 1, 4), 1, r".*token \(1, n, D\), got"),
    ((1, 2, 4), 4, "expected at from 0 to 3, the number of tokens, got 4"),
])  # fmt: skip
def test_tokens_that_cannot_be_inserted_are_refused(shape, at, message):
    with pytest.raises(ValueError, match=f"insert_tokens: {message}"):
        F.insert_tokens(np.ones((2, 3, 4)), np.ones(shape), at)
