import numpy as np
import pytest
from attentions import random_attention
from hypothesis import given
from strategies import images_for, seeds, vits

from tinyvit import ViT, ViTConfig, probe


@pytest.mark.parametrize("L", [1, 2, 5])
def test_the_rollout_of_uniform_attention_halves_what_a_token_keeps_in_each_layer(L):
    """Â = (I + U)/2 with U U = U, so that its power L is I/2ᴸ + (1 − 1/2ᴸ) U."""
    uniform = np.full((5, 5), 1 / 5)
    rolled = probe.attention_rollout(np.broadcast_to(uniform, (L, 1, 2, 5, 5)))
    np.testing.assert_allclose(rolled[0], np.eye(5) / 2**L + (1 - 1 / 2**L) * uniform, rtol=1e-14)


def test_the_rollout_multiplies_the_last_layer_from_the_left_and_averages_heads():
    attention = random_attention((2, 1, 3, 4, 4))
    first, last = (0.5 * np.eye(4) + 0.5 * attention[layer, 0].mean(0) for layer in (0, 1))
    np.testing.assert_allclose(probe.attention_rollout(attention)[0], last @ first, rtol=1e-14)


@given(model=vits(), seed=seeds())
def test_the_rollout_of_any_model_is_a_distribution_over_tokens(model, seed):
    rolled = probe.attention_rollout(probe.trace(model, images_for(model, seed, 2)).attention)
    assert (rolled > 0).any(-1).all() and (rolled >= 0).all()
    np.testing.assert_allclose(rolled.sum(-1), 1, rtol=1e-12)


def test_gradient_weighted_attention_of_two_layers_by_hand():
    attention, gradient = random_attention((2, 1, 3, 4, 4)), np.random.default_rng(1).standard_normal((2, 1, 3, 4, 4))
    first, last = (np.maximum(attention[i, 0] * gradient[i, 0], 0).mean(0) for i in (0, 1))
    expected = (np.eye(4) + last) @ (np.eye(4) + first)
    np.testing.assert_allclose(probe.gradient_weighted_attention(attention, gradient)[0], expected, rtol=1e-13)


@pytest.mark.parametrize("global_pool", ["token", "avg"])
def test_the_patch_that_alone_decides_for_a_class_has_the_relevance(global_pool):
    """Uniform attention carries the patches' values to the head: positive in one patch, negative in all others."""
    model = ViT(ViTConfig(6, 2, 1, 2, embed_dim=4, depth=1, num_heads=1, global_pool=global_pool), dtype="float64")
    state = {name: np.zeros_like(value) for name, value in model.state_dict().items()}
    state["blocks.0.norm1.weight"][:] = state["norm.weight"][:] = 1
    state["pos_embed"][0, :, 0] = -1
    state["pos_embed"][0, :, 1] = 2  # so that no layer norm sees a token of equal numbers
    state["pos_embed"][0, 1 + 5, 0] = 9
    state["blocks.0.attn.qkv.weight"][8:, :] = np.eye(4)
    state["blocks.0.attn.proj.weight"][:] = np.eye(4)
    state["head.weight"][1, 0] = 1
    model.load_state_dict(state)
    trace = probe.trace(model, np.zeros((1, 1, 6, 6)), classes=[1])
    np.testing.assert_allclose(trace.attention, 1 / 10, rtol=1e-12)
    relevance = probe.gradient_weighted_attention(trace.attention, trace.attention_gradients)
    heat = probe.over_patches(relevance - np.eye(10), trace.grid, global_pool)[0]
    assert heat[1, 2] > 0
    heat[1, 2] = 0
    np.testing.assert_array_equal(heat, 0)


def test_attention_without_its_gradient_is_refused():
    attention = random_attention((2, 1, 3, 4, 4))
    with pytest.raises(ValueError, match="got none: trace it with classes"):
        probe.gradient_weighted_attention(attention, None)


@pytest.mark.parametrize("draw", [probe.draw_rollout, probe.draw_class_attention])
@pytest.mark.parametrize("heat", [np.arange(6.0).reshape(2, 3) / 20, np.zeros((2, 3))], ids=["some", "none"])
def test_the_figures_show_the_image_beside_its_heat(draw, heat):
    image = np.random.default_rng(0).uniform(size=(3, 4, 6))
    figure = draw(heat, image, title="a dog for $5")
    left, right, _ = figure.axes
    np.testing.assert_array_equal(left.images[0].get_array(), image.transpose(1, 2, 0))
    np.testing.assert_array_equal(right.images[1].get_array(), heat)
    figure.canvas.draw()
