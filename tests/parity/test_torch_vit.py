"""The whole model against a ViT written in PyTorch that loads its weights, in float64."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import seeds
from torch_autograd import assert_all_close, normal
from torch_vit import gradients_by_autograd, gradients_by_hand, redrawn_vit, sincos_table, torch_twin

from tinyvit import ViT, ViTConfig
from tinyvit.models.vit_config import POSITIONS

pytestmark = pytest.mark.parity


@st.composite
def configs(draw, positions):
    """A small ViT of this kind of positions, with images and patches of any shape, one patch included."""
    rows, columns, p, q, heads, quarter = (draw(st.integers(1, 3)) for _ in range(6))
    return ViTConfig(
        img_size=(rows * p, columns * q),
        patch_size=(p, q),
        in_chans=draw(st.integers(1, 3)),
        num_classes=draw(st.integers(1, 4)),
        embed_dim=4 * quarter * heads,
        depth=draw(st.integers(1, 2)),
        num_heads=heads,
        mlp_ratio=draw(st.sampled_from([0.5, 1.75, 4.0])),
        qkv_bias=draw(st.booleans()),
        global_pool=draw(st.sampled_from(["token", "avg"])),
        positions=positions,
        head_hidden=draw(st.none() | st.integers(1, 5)),
        activation=draw(st.sampled_from(["gelu", "gelu_tanh"])),
        norm_eps=draw(st.sampled_from([1e-12, 1e-6, 1e-3])),
    )


def assert_twins_agree(config, samples, seed=0):
    model = redrawn_vit(config, seed)
    images, dlogits = normal(seed, (samples, *model.embed.image_shape), (samples, config.num_classes))
    expected = gradients_by_autograd(torch_twin(model), images, dlogits)
    assert_all_close(gradients_by_hand(model, images, dlogits), expected)


@pytest.mark.parametrize("positions", POSITIONS)
@given(data=st.data(), samples=st.integers(1, 3), seed=seeds())
def test_logits_and_every_gradient_of_any_vit_are_those_of_torch(positions, data, samples, seed):
    assert_twins_agree(data.draw(configs(positions)), samples, seed)


@pytest.mark.parametrize("global_pool", ["token", "avg"])
@pytest.mark.parametrize("positions", POSITIONS)
def test_a_deep_vit_with_rectangles_everywhere_agrees_with_torch(positions, global_pool):
    assert_twins_agree(
        ViTConfig(img_size=(12, 10), patch_size=(4, 2), embed_dim=48, depth=6, num_heads=6, positions=positions,
                  global_pool=global_pool, head_hidden=20), samples=5)  # fmt: skip


@pytest.mark.parametrize("positions", ["sincos_1d", "sincos_2d"])
def test_the_table_of_sines_is_the_one_from_the_formula(positions):
    model = ViT(ViTConfig(img_size=(12, 10), patch_size=(4, 2), embed_dim=24, positions=positions), dtype="float64")
    table = sincos_table(positions, 3, 5, 24)
    np.testing.assert_allclose(model.state_dict()["pos_embed"], table, rtol=0, atol=1e-14)
