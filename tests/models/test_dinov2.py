"""DINOv2's ViT."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import redrawn, seeds

from tinyvit import gradcheck
from tinyvit.models import Dinov2Config, ViTConfig, build, create_model

SMALL = Dinov2Config(img_size=8, patch_size=4, in_chans=2, num_classes=3, embed_dim=8, depth=2, num_heads=2,
                     layer_scale=0.5)  # fmt: skip


def random_images(model, count=2):
    return np.random.default_rng(0).standard_normal((count, *model.image_shape)).astype(model.dtype)


@given(registers=st.integers(0, 3), swiglu=st.booleans(), pool=st.sampled_from(["token", "avg"]), seed=seeds(),
       positions=st.sampled_from(["learned", "sincos_2d", "rope", "none"]))  # fmt: skip
def test_gradients_of_any_dinov2_match_the_complex_step(registers, swiglu, pool, seed, positions):
    config = replace(SMALL, num_registers=registers, swiglu=swiglu, positions=positions, global_pool=pool)
    model = redrawn(build(config, dtype="float64"), seed)
    report = gradcheck.check_model(model, random_images(model), redraw=False, directions=3)
    assert report.max_error < 1e-9, report


def test_with_factors_of_one_it_is_a_vit():
    config = replace(SMALL, layer_scale=1.0)
    model = redrawn(build(config, dtype="float64"))
    for name, parameter in model.named_parameters():
        if name.endswith("gamma"):
            parameter.data = np.ones(8)
    fields = {name: value for name, value in vars(config).items() if name in ViTConfig.__dataclass_fields__}
    vit = build(ViTConfig(**fields), dtype="float64")
    vit.load_state_dict({name: array for name, array in model.state_dict().items() if "gamma" not in name})
    images = random_images(model)
    np.testing.assert_allclose(model(images)[0], vit(images)[0], rtol=1e-13)


def test_registers_come_behind_the_class_token_have_no_position_and_are_thrown_away():
    model = redrawn(build(replace(SMALL, num_registers=3), dtype="float64"))
    images = random_images(model)
    tokens, _ = model.embed(images)
    assert model.num_prefix_tokens == 4 and tokens.shape == (2, 4 + 4, 8)
    np.testing.assert_array_equal(tokens[:, 1:4], np.repeat(model.embed.reg_token.data, 2, axis=0))
    assert model.embed.positions.pos_embed.shape == (1, 1 + 4, 8)
    np.testing.assert_array_equal(model.features(images), model.encode(tokens)[0][:, 0])


@pytest.mark.parametrize("dim, hidden", [(8, 24), (384, 1024), (1536, 4096)])
def test_a_gated_mlp_is_two_thirds_as_wide_in_steps_of_eight(dim, hidden):
    config = Dinov2Config(img_size=8, patch_size=4, embed_dim=dim, num_heads=2, mlp_ratio=4.0, swiglu=True)
    assert config.swiglu_hidden == hidden


def test_the_models_of_the_paper_have_names():
    model = create_model("vit_small_patch14_reg4_dinov2", device="meta")
    assert model.num_prefix_tokens == 5 and model.grid == (37, 37) and model.depth == 12
