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
