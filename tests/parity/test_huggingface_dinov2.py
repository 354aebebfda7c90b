"""DINOv2 against Transformers, which reads the folders that we write, in float64; and DINO's ViT, a ViTModel."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from by_transformers import assert_same_outputs_and_gradients
from small_weights import model_of, redrawn_weights
from torch_autograd import normal
from transformers import Dinov2Config as TheirConfig
from transformers import Dinov2Model, Dinov2WithRegistersConfig, Dinov2WithRegistersModel, ViTModel
from transformers import ViTConfig as TheirViTConfig

from tinyvit import interop
from tinyvit.interop.huggingface_vits import DINOV2
from tinyvit.models import Dinov2Config, create_model

pytestmark = pytest.mark.parity

SHAPE = Dinov2Config(img_size=12, patch_size=4, num_classes=0, embed_dim=24, depth=2, num_heads=3, mlp_ratio=4.0)
CONFIGS = {
    "plain": SHAPE,
    "registers": replace(SHAPE, num_registers=4),
    "gated": replace(SHAPE, swiglu=True, layer_scale=1.0),
    "gated, registers, one channel": replace(SHAPE, swiglu=True, num_registers=2, in_chans=1, qkv_bias=False),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_the_class_token_and_every_gradient_are_those_of_transformers(name, tmp_path):
    kind = Dinov2WithRegistersModel if CONFIGS[name].num_registers else Dinov2Model
    weights = redrawn_weights(CONFIGS[name])
    assert_same_outputs_and_gradients(weights, DINOV2, kind, tmp_path / "folder", output="pooler_output")


@pytest.mark.parametrize("gated, registers", [(False, 0), (True, 0), (False, 3)])
def test_what_transformers_writes_is_read(gated, registers, tmp_path):
    common = dict(hidden_size=24, num_hidden_layers=2, num_attention_heads=3, image_size=28, patch_size=14,
                  use_swiglu_ffn=gated)  # fmt: skip
    torch.manual_seed(0)
    theirs = (Dinov2WithRegistersModel(Dinov2WithRegistersConfig(num_register_tokens=registers, **common))
              if registers else Dinov2Model(TheirConfig(**common)))  # fmt: skip
    theirs.eval().save_pretrained(tmp_path / "theirs")
    ours = model_of(interop.load(tmp_path / "theirs"), "float64")
    images = normal(0, (2, 3, 28, 28))
    with torch.no_grad():
        expected = theirs.double()(torch.tensor(images)).pooler_output.numpy()
    np.testing.assert_allclose(ours(images)[0], expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", ["vit_small_patch14_dinov2", "vit_base_patch14_reg4_dinov2",
                                  "vit_giant_patch14_reg4_dinov2"])  # fmt: skip
def test_the_papers_models_have_as_many_parameters_as_transformers(name):
    ours = create_model(name, device="meta")
    config = ours.config
    common = dict(
        hidden_size=config.embed_dim, num_hidden_layers=config.depth, num_attention_heads=config.num_heads,
        image_size=518, patch_size=14, use_swiglu_ffn=config.swiglu,
    )  # fmt: skip
    with torch.device("meta"):
        theirs = (Dinov2WithRegistersModel(Dinov2WithRegistersConfig(num_register_tokens=4, **common))
                  if config.num_registers else Dinov2Model(TheirConfig(**common)))  # fmt: skip
    count = sum(p.numel() for n, p in theirs.named_parameters() if not n.endswith("mask_token"))
    assert ours.num_parameters() == count


def test_the_weights_of_the_first_dino_are_those_of_a_vit_model(tmp_path):
    torch.manual_seed(0)
    theirs = ViTModel(TheirViTConfig(hidden_size=24, num_hidden_layers=2, num_attention_heads=3, intermediate_size=96,
                                     image_size=16, patch_size=8), add_pooling_layer=False)  # fmt: skip
    theirs.eval().save_pretrained(tmp_path / "theirs")
    ours = model_of(interop.load(tmp_path / "theirs"), "float64")
    images = normal(0, (2, 3, 16, 16))
    with torch.no_grad():
        expected = theirs.double()(torch.tensor(images)).last_hidden_state[:, 0].numpy()
    np.testing.assert_allclose(ours(images)[0], expected, rtol=1e-10, atol=1e-10)
