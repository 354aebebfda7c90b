import numpy as np
import pytest
from attentions import looking_left, random_attention

from tinyvit import probe
from tinyvit.probe.distance import patch_distances


def of_one_head(attention, grid, patch_size):
    return probe.mean_attention_distance(attention[None, None, None], grid, patch_size).item()


def test_distances_are_those_between_the_centres_in_pixels():
    diagonal = 34**0.5
    expected = [[0, 5, 3, diagonal], [5, 0, diagonal, 3], [3, diagonal, 0, 5], [diagonal, 3, 5, 0]]
    np.testing.assert_allclose(patch_distances((2, 2), (3, 5)), expected, rtol=1e-15)


@pytest.mark.parametrize("n", [1, 3, 8])
def test_uniform_attention_on_a_row_of_n_patches_has_a_mean_distance_of_a_third_of_the_row(n):
    """The mean of |i − j| over all i, j from 1 to n is (n² − 1) / 3n."""
    expected = 16 * (n * n - 1) / (3 * n)
    assert of_one_head(np.full((n + 1, n + 1), 1 / (n + 1)), (1, n), 16) == pytest.approx(expected, abs=1e-12)
    assert probe.uniform_attention_distance((1, n), 16) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("grid", [(3, 4), (1, 2), (5, 2)])
def test_a_head_that_attends_one_patch_to_the_left_has_a_distance_of_one_patch(grid):
    assert of_one_head(looking_left(grid), grid, (7, 5)) == 5


def test_a_head_that_attends_only_to_the_class_token_has_no_distance():
    attention = np.zeros((2, 1, 1, 7, 7))
    attention[0, ..., 0] = 1
    attention[1] = 1 / 7
    found = probe.mean_attention_distance(attention, (2, 3), 4)
    assert np.isnan(found[0]).all() and np.isfinite(found[1]).all()


def test_each_layer_image_and_head_has_its_own_distance_whatever_goes_to_the_class_token():
    attention = random_attention((2, 3, 4, 7, 7))
    found = probe.mean_attention_distance(attention, (2, 3), 4)
    assert found.shape == (2, 3, 4)
    assert found[1, 2, 3] == pytest.approx(of_one_head(attention[1, 2, 3], (2, 3), 4), rel=1e-14)
    more = attention.copy()
    more[..., 1:, 1:] *= 0.5
    more[..., 1:, 0] = 1 - more[..., 1:, 1:].sum(-1)
    np.testing.assert_allclose(probe.mean_attention_distance(more, (2, 3), 4), found, rtol=1e-13)


def test_it_is_the_mean_of_the_patches_distances_weighted_by_what_each_gives_to_patches():
    attention = random_attention((1, 1, 1, 7, 7))
    d, A = patch_distances((2, 3), 4), attention[0, 0, 0, 1:, 1:]
    of_each = (A * d).sum(-1) / A.sum(-1)
    found = probe.mean_attention_distance(attention, (2, 3), 4).item()
    assert found == pytest.approx(np.average(of_each, weights=A.sum(-1)), rel=1e-14)
    assert abs(found - of_each.mean()) > 1e-3                              # not the plain mean, patch by patch
    attention[..., 1:, 1:] *= 0.7 / attention[..., 1:, 1:].sum(-1, keepdims=True)
    found = probe.mean_attention_distance(attention, (2, 3), 4).item()
    assert found == pytest.approx(of_each.mean(), rel=1e-13)               # but for equal shares of the class token


@pytest.mark.parametrize("missing", [False, True])
def test_the_figure_has_a_dot_for_each_head_and_a_line_for_uniform_attention(missing):
    distances = np.array([[1.0, 2.0, 3.0], [np.nan if missing else 4.0, 5.0, 6.0]])
    axes = probe.draw_attention_distance(distances, 3.5).axes[0]
    dots = np.concatenate([dots.get_offsets() for dots in axes.collections])
    assert sorted(np.ma.filled(dots[:, 1], np.nan)[~np.isnan(dots[:, 1])]) == sorted(distances[~np.isnan(distances)])
    mean, uniform = axes.lines
    np.testing.assert_allclose(mean.get_ydata(), [2, 5.5 if missing else 5])
    assert set(uniform.get_ydata()) == {3.5}
    axes.figure.canvas.draw()
