import numpy as np
import pytest
from strategies import redrawn

from tinyvit import ViT, ViTConfig, probe
from tinyvit import functional as F


def model_with(positions):
    return redrawn(ViT(ViTConfig((4, 6), 2, 1, 2, embed_dim=8, depth=1, num_heads=1, positions=positions)))


def test_the_similarity_of_sincos_positions_follows_from_their_distance():
    """sin a sin b + cos a cos b = cos(a − b), summed over frequencies, half of them for rows, half for columns."""
    rows, columns, D = 3, 4, 16
    found = probe.position_similarity(F.sincos_2d((rows, columns), D)[0, 1:], (rows, columns))
    frequencies = 10_000.0 ** -(np.arange(D // 4) / (D // 4))
    for r, c, r2, c2 in np.ndindex(found.shape):
        expected = (np.cos(frequencies * (r - r2)).mean() + np.cos(frequencies * (c - c2)).mean()) / 2
        assert found[r, c, r2, c2] == pytest.approx(expected, abs=1e-7)


def test_each_position_is_similar_to_itself_and_similarity_is_symmetric():
    positions = np.random.default_rng(0).standard_normal((6, 8))
    found = probe.position_similarity(positions, (2, 3)).reshape(6, 6)
    np.testing.assert_allclose(np.diag(found), 1, rtol=1e-12)
    np.testing.assert_array_equal(found, found.T)
    np.testing.assert_allclose(probe.position_similarity(-3 * positions, (2, 3)).reshape(6, 6), found, rtol=1e-12)


@pytest.mark.parametrize("positions", ["learned", "learned_2d", "sincos_1d", "sincos_2d"])
def test_the_positions_of_patches_are_what_the_model_adds_to_them(positions):
    model = model_with(positions)
    images = np.random.default_rng(0).standard_normal((1, 1, 4, 6)).astype("float32")
    trace = probe.trace(model, images)
    added = trace.values["(positions)"][0, 1:] - trace.values["patch_embed"][0]
    found = probe.patch_positions(model)
    assert found.shape == (6, 8)
    np.testing.assert_allclose(found, added, atol=1e-6)


@pytest.mark.parametrize(("positions", "said"), [
    ("none", "a model with positions 'none' adds none to its tokens$"),
    ("rope", "a model with positions 'rope' adds none to its tokens: it rotates queries and keys"),
])  # fmt: skip
def test_a_model_without_added_positions_says_so(positions, said):
    with pytest.raises(ValueError, match=said):
        probe.patch_positions(model_with(positions))


def test_the_figure_has_a_tile_for_each_patch_in_its_place():
    similarity = np.random.default_rng(0).uniform(-1, 1, (3, 2, 3, 2))
    axes = probe.draw_position_similarity(similarity).axes[0]
    drawn = axes.images[0].get_array().filled(np.nan)
    height, width = (drawn.shape[0] + 1) // 3, (drawn.shape[1] + 1) // 2
    for r, c in np.ndindex(3, 2):
        tile = drawn[r * height : (r + 1) * height - 1, c * width : (c + 1) * width - 1]
        cell = tile.shape[0] // 3
        np.testing.assert_array_equal(tile[::cell, ::cell], similarity[r, c])
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["0", "1", "2"]
    axes.figure.canvas.draw()
