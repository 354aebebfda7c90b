import re
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import normals, seeds, tokens

from tinyvit import functional as F
from tinyvit import gradcheck

GRIDS = st.tuples(st.integers(1, 4), st.integers(1, 4))
METHODS = st.sampled_from(["bilinear", "bicubic", "zoom"])
PREFIXES = st.integers(0, 3)


@given(x=tokens(), seed=seeds())
def test_add_positions_gradients_match_the_complex_step(x, seed):
    positions = np.random.default_rng(seed).standard_normal((1, *x.shape[1:]))
    report = gradcheck.check(F.add_positions, F.add_positions_backward, (x, positions))
    assert report.max_error < 1e-10, report


@given(grid=GRIDS, half=st.integers(1, 4), prefix=PREFIXES, seed=seeds())
def test_grid_positions_gradients_match_the_complex_step(grid, half, prefix, seed):
    generator = np.random.default_rng(seed)
    along = generator.standard_normal((1, grid[1], half)), generator.standard_normal((1, grid[0], half))
    forward = partial(F.grid_positions, prefix=prefix)
    report = gradcheck.check(forward, F.grid_positions_backward, along)
    assert report.max_error < 1e-10, report


@given(normals((1, 3, 2), (1, 4, 2), dtype="float64"), PREFIXES)
def test_grid_positions_put_the_column_beside_the_row(arrays, prefix):
    along_x, along_y = arrays
    positions, _ = F.grid_positions(along_x, along_y, prefix)
    assert positions.shape == (1, prefix + 12, 4) and not positions[0, :prefix].any()
    for i in range(4):
        for j in range(3):
            expected = np.concatenate([along_x[0, j], along_y[0, i]])
            np.testing.assert_array_equal(positions[0, prefix + 3 * i + j], expected)


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


@given(grid=GRIDS, kind=st.sampled_from([F.sincos_1d, F.sincos_2d]), prefix=PREFIXES)
def test_sines_and_cosines_come_after_zeros_for_the_prefix_tokens(grid, kind, prefix):
    positions = kind(grid, 8, prefix)
    assert not positions[0, :prefix].any()
    np.testing.assert_array_equal(positions[:, prefix:], kind(grid, 8)[:, 1:])


@given(grid=GRIDS, new_grid=GRIDS, method=METHODS, prefix=PREFIXES, seed=seeds())
def test_resize_positions_gradients_match_the_complex_step(grid, new_grid, method, prefix, seed):
    positions = np.random.default_rng(seed).standard_normal((1, prefix + grid[0] * grid[1], 3))
    resize = partial(F.resize_positions, grid=grid, new_grid=new_grid, method=method, prefix=prefix)
    report = gradcheck.check(resize, F.resize_positions_backward, (positions,))
    assert report.max_error < 1e-10, report


@given(grid=GRIDS, method=METHODS, seed=seeds())
def test_positions_resized_to_their_own_grid_are_themselves(grid, method, seed):
    positions = np.random.default_rng(seed).standard_normal((1, 1 + grid[0] * grid[1], 3))
    np.testing.assert_allclose(F.resize_positions(positions, grid, grid, method)[0], positions, atol=1e-14)


@given(grid=GRIDS, new_grid=GRIDS, method=METHODS, prefix=PREFIXES)
def test_resizing_keeps_the_prefix_tokens_and_constant_positions(grid, new_grid, method, prefix):
    positions = np.ones((1, prefix + grid[0] * grid[1], 2))
    positions[0, :prefix] = 7
    resized, _ = F.resize_positions(positions, grid, new_grid, method, prefix)
    assert resized.shape == (1, prefix + new_grid[0] * new_grid[1], 2)
    np.testing.assert_array_equal(resized[0, :prefix], 7)
    np.testing.assert_allclose(resized[0, prefix:], 1, atol=1e-14)


@given(grid=GRIDS, new_grid=GRIDS, method=METHODS, seed=seeds())
def test_the_axes_can_be_resized_one_after_the_other_in_either_order(grid, new_grid, method, seed):
    positions = np.random.default_rng(seed).standard_normal((1, 1 + grid[0] * grid[1], 3))
    both, _ = F.resize_positions(positions, grid, new_grid, method)
    for between in ((new_grid[0], grid[1]), (grid[0], new_grid[1])):
        first, _ = F.resize_positions(positions, grid, between, method)
        np.testing.assert_allclose(F.resize_positions(first, between, new_grid, method)[0], both, atol=1e-13)


@given(x=normals((1, 1 + 2 * 3, 4)), method=METHODS)
def test_resized_positions_keep_their_dtype(x, method):
    assert F.resize_positions(x[0], (2, 3), (4, 2), method)[0].dtype == x[0].dtype


def test_a_ramp_stays_a_ramp_between_the_outermost_centres():
    ramp = np.concatenate([[0.0], np.tile(np.arange(8.0), 2)]).reshape(1, 17, 1)
    resized, _ = F.resize_positions(ramp, (2, 8), (2, 4))
    np.testing.assert_allclose(resized[0, 1:5, 0], [0.5, 2.5, 4.5, 6.5])  # the centre of each pair


def test_positions_that_do_not_fit_their_grid_are_refused():
    with pytest.raises(ValueError, match=r"expected \(1, 7, D\) for a grid of 2×3 and 1 prefix token, got \(1, 6, 4\)"):
        F.resize_positions(np.ones((1, 6, 4)), (2, 3), (4, 4))
    with pytest.raises(ValueError, match=r"\(1, 8, D\) for a grid of 2×3 and 2 prefix tokens, got \(1, 7, 4\)"):
        F.resize_positions(np.ones((1, 7, 4)), (2, 3), (4, 4), prefix=2)


@pytest.mark.parametrize("pair", [(0, 3), (-1, 3), (3.5, 3), (5, 5, 5), (5,), 5, (-2, -3), None])
@pytest.mark.parametrize("name", ["grid", "new_grid"])
def test_a_grid_that_is_not_a_pair_of_positive_ints_is_refused(name, pair):
    grids = {"grid": (2, 3), "new_grid": (4, 4)} | {name: pair}
    message = f"^resize_positions: expected {name} as two positive ints .rows, columns., got {re.escape(repr(pair))}$"
    with pytest.raises(ValueError, match=message):
        F.resize_positions(np.ones((1, 7, 4)), **grids)


@pytest.mark.parametrize("dtype", ["int64", "uint8", "bool"])
def test_integer_positions_are_resized_in_floating_point_and_not_rounded(dtype):
    positions = (np.arange(28).reshape(1, 7, 4) % 3).astype(dtype)
    expected, _ = F.resize_positions(positions.astype("float64"), (2, 3), (4, 4))
    np.testing.assert_array_equal(F.resize_positions(positions, (2, 3), (4, 4))[0], expected, strict=True)


def test_an_unknown_method_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match=r"a method of bilinear, bicubic, zoom, got 'nearest'"):
        F.resize_positions(np.ones((1, 7, 4)), (2, 3), (4, 4), "nearest")
