"""Replaced tokens, tokens put back between mask tokens, and the squared error of what was guessed."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import seeds

from tinyvit import functional as F
from tinyvit import gradcheck

sizes = st.tuples(st.integers(1, 3), st.integers(1, 6), st.integers(1, 4))


def drawn(seed, shape):
    """Tokens, a mask token, and an order of each sample's tokens."""
    generator = np.random.default_rng(seed)
    order = generator.random(shape[:2]).argsort(1)
    return generator.standard_normal(shape), generator.standard_normal((1, 1, shape[2])), order


@given(shape=sizes, seed=seeds())
def test_gradients_of_replaced_tokens_match_the_complex_step(shape, seed):
    x, token, order = drawn(seed, shape)
    mask = order % 2 == 0
    y, _ = F.replace_tokens(x, token, mask)
    np.testing.assert_array_equal(y, np.where(mask[..., None], token, x))
    report = gradcheck.check(partial(F.replace_tokens, mask=mask), F.replace_tokens_backward, (x, token), seed=seed)
    assert report.max_error < 1e-10, report


@given(shape=sizes, seed=seeds(), data=st.data())
def test_gradients_of_placed_tokens_match_the_complex_step(shape, seed, data):
    x, token, order = drawn(seed, shape)
    N, index = shape[1], order[:, : data.draw(st.integers(1, shape[1]))]
    some = F.take_tokens(x, index)[0]
    placed = partial(F.place_tokens, index=index, count=N)
    report = gradcheck.check(placed, F.place_tokens_backward, (some, token), seed=seed)
    assert report.max_error < 1e-10, report


@given(shape=sizes, seed=seeds(), data=st.data())
def test_what_is_taken_and_put_back_is_where_it_was_and_the_token_everywhere_else(shape, seed, data):
    x, token, order = drawn(seed, shape)
    visible = data.draw(st.integers(1, shape[1]))
    y, _ = F.place_tokens(F.take_tokens(x, order[:, :visible])[0], token, order[:, :visible], shape[1])
    rows = np.arange(len(x))[:, None]
    np.testing.assert_array_equal(y[rows, order[:, :visible]], x[rows, order[:, :visible]])
    np.testing.assert_array_equal(y[rows, order[:, visible:]], np.broadcast_to(token, x.shape)[:, visible:])


@given(shape=sizes, seed=seeds())
def test_gradients_of_the_squared_error_match_the_complex_step(shape, seed):
    x, _, _ = drawn(seed, shape)
    targets = np.random.default_rng(seed + 1).standard_normal(shape)
    report = gradcheck.check(partial(F.mean_squared_error, targets=targets), F.mean_squared_error_backward, (x,))
    assert report.max_error < 1e-10, report
    assert F.mean_squared_error(targets, targets)[0] == 0
    np.testing.assert_allclose(F.mean_squared_error(x, targets)[0], ((x - targets) ** 2).mean(), rtol=1e-14)


x, token = np.ones((2, 3, 4)), np.ones((1, 1, 4))


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: F.replace_tokens(x, np.ones((1, 1, 5)), np.ones((2, 3), bool)), r"token \(1, 1, D\), got \(2, 3, 4\)"),
        (lambda: F.replace_tokens(x, token, np.ones((2, 4), bool)), r"mask of bools \(2, 3\), got bool \(2, 4\)"),
        (lambda: F.replace_tokens(x, token, np.ones((2, 3))), r"mask of bools \(2, 3\), got float64 \(2, 3\)"),
        (lambda: F.replace_tokens(x, token, None), "expected mask as an array, got NoneType"),
        (lambda: F.place_tokens(x, token, np.zeros((2, 3), int), 2), "count as an int of at least 3, got 2"),
        # Of an index on a GPU only the shape is looked at, so that nothing waits for it.
        (lambda: F.place_tokens.reference(x, token, np.zeros((2, 2), int), 3), "place_tokens: .* got one twice"),
        (lambda: F.place_tokens(x, token, np.array([[0, 1], [1, 0]]), 3), r"an index \(2, 3\) for tokens \(2, 3, 4\)"),
        (lambda: F.place_tokens.reference(x, token, np.array([[0, 1, 4], [1, 0, 2]]), 4), "from 0 to 3, got 0 to 4"),
        (lambda: F.mean_squared_error(x, np.ones((2, 3))), r"targets \(2, 3, 4\) .* got float64 \(2, 3\)"),
        (lambda: F.mean_squared_error(x, np.ones((2, 3, 4), int)), r"got int64 \(2, 3, 4\)"),
    ],
)  # fmt: skip
def test_bad_arguments_get_one_clear_error(call, message):
    with pytest.raises(ValueError, match=message):
        call()
