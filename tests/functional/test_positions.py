from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import normals, seeds, tokens

from tinyvit import functional as F
from tinyvit import gradcheck

GRIDS = st.tuples(st.integers(1, 4), st.integers(1, 4))


@given(x=tokens(), seed=seeds())
def test_add_positions_gradients_match_the_complex_step(x, seed):
    positions = np.random.default_rng(seed).standard_normal((1, *x.shape[1:]))
    report = gradcheck.check(F.add_positions, F.add_positions_backward, (x, positions))
    assert report.max_error < 1e-10, report


@given(grid=GRIDS, half=st.integers(1, 4), seed=seeds())
def test_grid_positions_gradients_match_the_complex_step(grid, half, seed):
    generator = np.random.default_rng(seed)
    along = generator.standard_normal((1, grid[1], half)), generator.standard_normal((1, grid[0], half))
    report = gradcheck.check(F.grid_positions, F.grid_positions_backward, along)
    assert report.max_error < 1e-10, report


@given(normals((1, 3, 2), (1, 4, 2), dtype="float64"))
def test_grid_positions_put_the_column_beside_the_row(arrays):
    along_x, along_y = arrays
    positions, _ = F.grid_positions(along_x, along_y)
    assert not positions[0, 0].any()
    for i in range(4):
        for j in range(3):
            expected = np.concatenate([along_x[0, j], along_y[0, i]])
            np.testing.assert_array_equal(positions[0, 1 + 3 * i + j], expected)


@given(grid=GRIDS, quarter=st.integers(1, 4))
def test_sincos_2d_encodes_the_column_first_then_the_row_at_frequencies_that_fall_geometrically(grid, quarter):
    positions = F.sincos_2d(grid, 4 * quarter)
    assert positions.shape == (1, 1 + grid[0] * grid[1], 4 * quarter)
    assert not positions[0, 0].any()
    for n in range(grid[0] * grid[1]):
        y, x = divmod(n, grid[1])
        frequencies = [10000 ** (-i / quarter) for i in range(quarter)]
        angles = [c * f for c in (x, y) for f in frequencies]
        half = len(frequencies)
        expected = [*np.sin(angles[:half]), *np.cos(angles[:half]), *np.sin(angles[half:]), *np.cos(angles[half:])]
        np.testing.assert_allclose(positions[0, 1 + n], expected, atol=1e-12)


@given(grid=GRIDS, half=st.integers(1, 6))
def test_sincos_1d_counts_the_patches(grid, half):
    positions = F.sincos_1d(grid, 2 * half)
    n = grid[0] * grid[1] - 1
    angles = [n * 10000 ** (-i / half) for i in range(half)]
    np.testing.assert_allclose(positions[0, -1], [*np.sin(angles), *np.cos(angles)], atol=1e-12)
    assert not positions[0, 0].any()


@pytest.mark.parametrize("call", [lambda: F.sincos_1d((2, 2), 5), lambda: F.sincos_2d((2, 2), 6)])
def test_sines_and_cosines_need_a_width_that_they_divide(call):
    with pytest.raises(ValueError, match="sincos"):
        call()


def test_positions_of_another_shape_are_refused():
    with pytest.raises(ValueError, match=r"expected positions \(1, 3, 4\), got \(1, 4, 4\)"):
        F.add_positions(np.ones((2, 3, 4)), np.ones((1, 4, 4)))


@given(grid=GRIDS, new_grid=GRIDS, seed=seeds())
def test_resize_positions_gradients_match_the_complex_step(grid, new_grid, seed):
    positions = np.random.default_rng(seed).standard_normal((1, 1 + grid[0] * grid[1], 3))
    resize = partial(F.resize_positions, grid=grid, new_grid=new_grid)
    report = gradcheck.check(resize, F.resize_positions_backward, (positions,))
    assert report.max_error < 1e-10, report


@given(grid=GRIDS, seed=seeds())
def test_positions_resized_to_their_own_grid_are_themselves(grid, seed):
    positions = np.random.default_rng(seed).standard_normal((1, 1 + grid[0] * grid[1], 3))
    np.testing.assert_allclose(F.resize_positions(positions, grid, grid)[0], positions, atol=1e-14)


@given(grid=GRIDS, new_grid=GRIDS)
def test_resizing_keeps_the_class_token_and_what_is_the_same_everywhere(grid, new_grid):
    positions = np.ones((1, 1 + grid[0] * grid[1], 2))
    positions[0, 0] = 7
    resized, _ = F.resize_positions(positions, grid, new_grid)
    assert resized.shape == (1, 1 + new_grid[0] * new_grid[1], 2)
    np.testing.assert_allclose(resized[0, 0], 7)
    np.testing.assert_allclose(resized[0, 1:], 1, atol=1e-14)


def test_a_ramp_stays_a_ramp_between_the_outermost_centres():
    ramp = np.concatenate([[0.0], np.tile(np.arange(8.0), 2)]).reshape(1, 17, 1)
    resized, _ = F.resize_positions(ramp, (2, 8), (2, 4))
    np.testing.assert_allclose(resized[0, 1:5, 0], [0.5, 2.5, 4.5, 6.5])  # the centre of each pair


def test_positions_that_do_not_fit_their_grid_are_refused():
    with pytest.raises(ValueError, match=r"expected \(1, 7, D\) for a grid of 2×3, got \(1, 6, 4\)"):
        F.resize_positions(np.ones((1, 6, 4)), (2, 3), (4, 4))
