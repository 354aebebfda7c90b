from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import seeds

from tinyvit import functional as F
from tinyvit import gradcheck

PAIRS = st.tuples(st.integers(1, 4), st.integers(1, 4))


@st.composite
def tables(draw):
    """A table (entries, H), the grid that it is for, and a grid that is not larger."""
    h, w = draw(PAIRS)
    grid = draw(st.integers(1, h)), draw(st.integers(1, w))
    shape = (2 * h - 1) * (2 * w - 1), draw(st.integers(1, 3))
    return np.random.default_rng(draw(seeds())).standard_normal(shape), (h, w), grid


@given(drawn=tables(), seed=seeds())
def test_gradients_match_the_complex_step(drawn, seed):
    table, sides, grid = drawn
    forward = partial(F.relative_bias, sides=sides, grid=grid)
    report = gradcheck.check(forward, F.relative_bias_backward, (table,), seed=seed)
    assert report.max_error < 1e-10, report


@given(drawn=tables())
def test_the_bias_depends_on_the_difference_of_positions_alone(drawn):
    table, sides, (rows, columns) = drawn
    bias, _ = F.relative_bias(table, sides, (rows, columns))
    found = {}
    places = list(np.ndindex(rows, columns))
    for i, query in enumerate(places):
        for j, key in enumerate(places):
            first = found.setdefault(tuple(np.subtract(query, key)), bias[:, i, j])
            np.testing.assert_array_equal(bias[:, i, j], first)
    distinct = {tuple(values.tolist()) for values in found.values()}
    assert len(found) == len(distinct) == (2 * rows - 1) * (2 * columns - 1)


@given(drawn=tables())
def test_a_smaller_grid_uses_the_same_entries_for_the_same_differences(drawn):
    table, sides, (rows, columns) = drawn
    whole, _ = F.relative_bias(table, sides)
    part, _ = F.relative_bias(table, sides, (rows, columns))
    corner = whole.reshape(-1, *sides, *sides)[:, :rows, :columns, :rows, :columns]
    np.testing.assert_array_equal(part, corner.reshape(part.shape))


def test_the_gradient_has_the_same_bits_whatever_the_memory_order():
    table = np.random.default_rng(0).standard_normal((49, 3), "float32")
    bias, cache = F.relative_bias(table, (4, 4))
    dy = np.random.default_rng(1).standard_normal(bias.shape, "float32")
    expected = F.relative_bias_backward(dy, cache)
    np.testing.assert_array_equal(F.relative_bias_backward(np.asfortranarray(dy), cache), expected)
    np.testing.assert_allclose(expected, F.relative_bias_backward(dy.astype("float64"), cache), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shape, sides, grid, message", [
    ((8, 3), (2, 2), None, r"expected a table \(9, H\) for 2×2 tokens, got \(8, 3\)"),
    ((9,), (2, 2), None, r"expected a table \(9, H\)"),
    ((9, 3), (2, 2), (3, 2), "expected a grid of at most 2×2 tokens, got 3×2"),
    ((9, 3), (2, 2), (0, 2), r"expected a size as a positive int or \(height, width\), got \(0, 2\)"),
])  # fmt: skip
def test_what_does_not_fit_is_refused(shape, sides, grid, message):
    with pytest.raises(ValueError, match=message):
        F.relative_bias(np.ones(shape), sides, grid)
