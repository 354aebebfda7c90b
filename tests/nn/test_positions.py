import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import seeds

from tinyvit import functional as F
from tinyvit import gradcheck
from tinyvit.nn.positions import FixedPositions, GridPositions, LearnedPositions

GRIDS = st.tuples(st.integers(1, 3), st.integers(1, 3))
KINDS = {
    "learned": lambda grid, prefix: LearnedPositions(grid, 8, "bicubic", prefix),
    "learned_2d": lambda grid, prefix: GridPositions(grid, 8, "bicubic", prefix),
    "fixed": lambda grid, prefix: FixedPositions(grid, F.sincos_2d(grid, 8, prefix), "bicubic", prefix),
}


@pytest.mark.parametrize("kind", KINDS)
@given(grid=GRIDS, new_grid=GRIDS, prefix=st.integers(0, 3), seed=seeds())
def test_positions_are_added_to_any_number_of_prefix_tokens_and_resized_behind_them(kind, grid, new_grid, prefix, seed):
    positions = KINDS[kind](grid, prefix).materialize(seed, "float64")
    tokens = np.random.default_rng(seed).standard_normal((2, prefix + new_grid[0] * new_grid[1], 8))
    own, _ = positions(np.zeros((1, prefix + grid[0] * grid[1], 8)))
    moved, _ = F.resize_positions(own, grid, new_grid, "bicubic", prefix)
    got, _ = positions(tokens, None, new_grid)
    np.testing.assert_allclose(got, tokens + moved, atol=1e-12)
    np.testing.assert_allclose(got[:, :prefix], tokens[:, :prefix] + own[:, :prefix], atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("prefix", [0, 1, 2])
def test_gradients_match_the_complex_step_with_any_number_of_prefix_tokens(kind, prefix):
    positions = KINDS[kind]((2, 3), prefix).materialize(0, "float64")
    tokens = np.random.default_rng(0).standard_normal((2, prefix + 6, 8))
    report = gradcheck.check_model(positions, tokens) if kind != "fixed" else gradcheck.check(
        positions.forward, positions.backward, (tokens,)
    )
    assert report.max_error < 1e-9, report
