import numpy as np
import pytest
from attentions import looking_left, random_attention
from strategies import redrawn

from tinyvit import ViT, ViTConfig, create_model, probe


def test_the_map_of_a_token_is_its_row_over_the_patches():
    weights = random_attention((2, 7, 7))
    np.testing.assert_array_equal(probe.over_patches(weights, (2, 3)), weights[:, 0, 1:].reshape(2, 2, 3))
    np.testing.assert_array_equal(probe.over_patches(weights, (2, 3), 4), weights[:, 4, 1:].reshape(2, 2, 3))


@pytest.mark.parametrize("pool", ["token", "avg"])
def test_maps_of_images_are_those_of_what_the_head_reads_or_of_the_query_that_is_given(pool):
    model = redrawn(ViT(ViTConfig(img_size=(8, 12), embed_dim=12, depth=2, num_heads=3, global_pool=pool)))
    images = np.random.default_rng(0).standard_normal((2, 3, 8, 12), "float32")
    attention = probe.trace(model, images).attention
    np.testing.assert_array_equal(probe.attention_maps(model, images), probe.over_patches(attention, (2, 3), pool))
    np.testing.assert_array_equal(probe.attention_maps(model, images, 4), probe.over_patches(attention, (2, 3), 4))
    with pytest.raises(ValueError, match="ResNet has no attention over the same patches in every layer"):
        probe.attention_maps(create_model("resnet8_digits"), np.zeros((1, 1, 8, 8), "float32"))


def test_the_map_without_class_token_is_the_mean_over_the_patches():
    weights = random_attention((2, 7, 7))
    expected = np.mean([probe.over_patches(weights, (2, 3), token) for token in range(1, 7)], 0)
    np.testing.assert_allclose(probe.over_patches(weights, (2, 3), "avg"), expected, rtol=1e-14)


@pytest.mark.parametrize("query", [7, -1, "class", 1.0])
def test_a_token_that_does_not_exist_is_refused(query):
    with pytest.raises(ValueError, match='expected "token", "avg" or a token from 0 to 6, got'):
        probe.over_patches(random_attention((7, 7)), (2, 3), query)


def test_weights_that_do_not_fit_the_grid_are_refused():
    with pytest.raises(ValueError, match=r"expected weights \(…, 7, 7\) for 2×3 patches, got \(5, 5\)"):
        probe.over_patches(random_attention((5, 5)), (2, 3))


def test_the_maps_of_a_head_that_looks_left_show_the_patch_on_the_left():
    maps = probe.head_maps(looking_left((3, 4)), (3, 4))
    expected = np.zeros((3, 4, 3, 4))
    for r in range(3):
        for c in range(1, 4):
            expected[r, c, r, c - 1] = 1
    np.testing.assert_array_equal(maps, expected)


def test_a_model_built_to_attend_to_the_left_does_so():
    """Positions are one-hot and queries match the position on their left, so its attention is nearly one."""
    rows, columns, N = 2, 3, 6
    model = ViT(ViTConfig((2 * rows, 2 * columns), 2, 1, 2, embed_dim=8, depth=1, num_heads=1), dtype="float64")
    state = {name: np.zeros_like(value) for name, value in model.state_dict().items()}
    state["pos_embed"][0] = np.eye(N + 1, 8)
    state["blocks.0.norm1.weight"][:] = state["norm.weight"][:] = 1
    queries, keys = np.zeros((8, 8)), np.eye(8)
    queries[: N + 1, : N + 1] = looking_left((rows, columns)).T  # of token i: the position that it looks at
    state["blocks.0.attn.qkv.weight"][:] = np.concatenate([20 * queries, keys, np.zeros((8, 8))])
    model.load_state_dict(state)
    images = np.random.default_rng(0).standard_normal((2, 1, 2 * rows, 2 * columns))
    trace = probe.trace(model, images)
    np.testing.assert_allclose(trace.attention[0, :, 0], [looking_left((rows, columns))] * 2, atol=1e-9)
    distance = probe.mean_attention_distance(trace.attention, trace.grid, 2)
    np.testing.assert_allclose(distance, [[[2], [2]]], rtol=1e-8)


def test_the_figure_of_maps_has_a_panel_for_each_head_with_its_numbers():
    maps = random_attention((2, 3, 4, 4))
    figure = probe.draw_attention_maps(maps, np.zeros((3, 8, 8)), blocks=[4, 5], heads=[1, 2, 7], title="$5 a head")
    *panels, bar = figure.axes
    assert len(panels) == 6 and bar.get_ylabel() == "share of the attention"
    assert [axes.get_title() for axes in panels[:3]] == ["head 1", "head 2", "head 7"]
    assert [axes.get_ylabel() for axes in panels[::3]] == ["block 4", "block 5"]
    for axes, heat in zip(panels, maps.reshape(6, 4, 4)):
        image, drawn = axes.images
        np.testing.assert_array_equal(drawn.get_array(), heat)
        assert tuple(drawn.get_extent()) == tuple(image.get_extent()) == (-0.5, 7.5, 7.5, -0.5)
    figure.canvas.draw()


def test_the_figure_of_a_heads_maps_has_a_ring_in_the_cell_of_each_patch():
    maps = np.zeros((2, 3, 2, 3))
    for r in range(2):
        for c in range(3):
            maps[r, c, r, c] = 1  # each looks at itself
    figure = probe.draw_head_maps(maps)
    (picture,), (rings,) = figure.axes[0].images, figure.axes[0].collections
    assert len(rings.get_offsets()) == 6
    for x, y in rings.get_offsets():
        assert picture.get_array()[round(y), round(x)] == 1
    figure.canvas.draw()
