import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import normals, seeds

from tinyvit import functional as F
from tinyvit import gradcheck

GRIDS = st.tuples(st.integers(1, 3), st.integers(1, 3))


def rotated(grid, prefix, width, seed):
    """Random heads (2, 3, prefix + patches, width) and what rope makes of them."""
    x = np.random.default_rng(seed).standard_normal((2, 3, prefix + grid[0] * grid[1], width))
    return x, *F.rope(x, grid)


@given(grid=GRIDS, prefix=st.integers(0, 2), quarter=st.integers(1, 3), seed=seeds())
def test_rope_gradients_match_the_complex_step(grid, prefix, quarter, seed):
    x, _, _ = rotated(grid, prefix, 4 * quarter, seed)
    report = gradcheck.check(F.rope, F.rope_backward, (x, grid), directions=3)
    assert report.max_error < 1e-10, report


@given(grid=GRIDS, prefix=st.integers(0, 2), quarter=st.integers(1, 3), seed=seeds())
def test_some_patches_turn_by_the_angles_of_their_places(grid, prefix, quarter, seed):
    x, y, _ = rotated(grid, prefix, 4 * quarter, seed)
    order = np.random.default_rng(seed).random((2, grid[0] * grid[1])).argsort(1)[:, : 1 + seed % 3]
    where = np.concatenate([np.tile(np.arange(prefix), (2, 1)), prefix + order], 1)[:, None, :, None]
    some = np.take_along_axis(x, where, 2)
    np.testing.assert_array_equal(F.rope(some, grid, index=order)[0], np.take_along_axis(y, where, 2))
    report = gradcheck.check(F.rope, F.rope_backward, (some, grid, 100.0, order), directions=3)
    assert report.max_error < 1e-10, report


@given(grid=GRIDS, prefix=st.integers(0, 2), quarter=st.integers(1, 3), seed=seeds())
def test_rope_keeps_lengths_and_leaves_the_class_token_alone(grid, prefix, quarter, seed):
    x, y, _ = rotated(grid, prefix, 4 * quarter, seed)
    np.testing.assert_array_equal(y[:, :, :prefix], x[:, :, :prefix])
    np.testing.assert_allclose(np.linalg.norm(y, axis=-1), np.linalg.norm(x, axis=-1), rtol=1e-13)


@given(arrays=normals((8,), (8,), dtype="float64"))
def test_the_product_of_rotated_query_and_key_depends_on_their_distance_alone(arrays):
    query, key = arrays
    q, _ = F.rope(np.broadcast_to(query, (1, 1, 12, 8)), (3, 4))
    k, _ = F.rope(np.broadcast_to(key, (1, 1, 12, 8)), (3, 4))
    scores = (q @ k.mT)[0, 0].reshape(3, 4, 3, 4)
    np.testing.assert_allclose(scores[1:, 1:, 1:, 1:], scores[:-1, :-1, :-1, :-1], atol=1e-12)


def test_the_first_half_of_the_pairs_turns_with_the_column_the_second_with_the_row():
    x = np.zeros((1, 1, 4, 8))
    x[..., ::2] = 1                                      # every pair is (1, 0)
    y, _ = F.rope(x, (2, 2))
    angles = np.arctan2(y[..., 1::2], y[..., ::2])[0, 0]  # (4 patches, 4 pairs)
    w = [1, 100**-0.5]
    np.testing.assert_allclose(angles, [[0, 0, 0, 0], [*w, 0, 0], [0, 0, *w], [*w, *w]], atol=1e-15)


def test_halves_turn_a_number_of_each_half_first_with_the_row_then_with_the_column():
    x = np.zeros((1, 1, 4, 8))
    x[..., :4] = 1                                       # every pair is (1, 0)
    y, _ = F.rope_halves(x, np.array([[0, 0], [0, 1], [1, 0], [1, 1]]))
    w = [1, 10_000**-0.5]
    np.testing.assert_allclose(np.arctan2(y[..., 4:], y[..., :4])[0, 0], [[0] * 4, [0, 0, *w], [*w, 0, 0], w + w])


@pytest.mark.parametrize("shape", [(1, 1, 4, 6), (1, 1, 3, 8)])
def test_rope_refuses_heads_that_do_not_fit(shape):
    with pytest.raises(ValueError, match="rope: expected"):
        F.rope(np.ones(shape), (2, 2))
    with pytest.raises(ValueError, match="rope_halves: expected"):
        F.rope_halves(np.ones(shape), np.ones((4, 2)))
