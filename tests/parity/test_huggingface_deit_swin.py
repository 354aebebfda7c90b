"""DeiT and Swin against Transformers, which reads the folders that we write, in float64."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from by_transformers import assert_read_as_written, assert_same_outputs_and_gradients, by_transformers
from small_weights import model_of, redrawn_weights
from torch_autograd import normal
from transformers import DeiTForImageClassificationWithTeacher, SwinForImageClassification

from tinyvit.interop.huggingface_vits import DEIT as DEIT_LAYOUT
from tinyvit.interop.huggingface_vits import SWIN as SWIN_LAYOUT
from tinyvit.models import DeiTConfig, SwinConfig, create_model

pytestmark = pytest.mark.parity

DEIT = DeiTConfig(img_size=12, patch_size=4, num_classes=5, embed_dim=24, depth=2, num_heads=3, norm_eps=1e-12)
SWIN = SwinConfig(img_size=32, patch_size=2, num_classes=5, embed_dim=8, depths=(2, 3), num_heads=(1, 2), window_size=4,
                  mlp_ratio=2.0)  # fmt: skip
CONFIGS = {
    "deit": DEIT,
    "deit, rectangles": replace(DEIT, img_size=(8, 12), in_chans=1, qkv_bias=False, activation="gelu_tanh"),
    "deit_tiny": replace(create_model("deit_tiny_distilled_patch16_224", device="meta").config, img_size=32,
                         num_classes=7, depth=3),
    "swin": SWIN,
    "swin, padded windows and an odd grid": replace(SWIN, img_size=(20, 30), in_chans=1),
    "swin, a window as large as the last grid": replace(SWIN, img_size=16, depths=(2, 2), qkv_bias=False),
    "swin_tiny": replace(create_model("swin_tiny_patch4_window7_224", device="meta").config, img_size=112,
                         num_classes=7, depths=(2, 2), num_heads=(3, 6)),
}  # fmt: skip
KINDS = {DeiTConfig: (DeiTForImageClassificationWithTeacher, DEIT_LAYOUT),
         SwinConfig: (SwinForImageClassification, SWIN_LAYOUT)}  # fmt: skip


@pytest.mark.parametrize("name", CONFIGS)
def test_logits_and_every_gradient_are_those_of_transformers(name, tmp_path):
    config = CONFIGS[name]
    kind, layout = KINDS[type(config)]
    assert_same_outputs_and_gradients(redrawn_weights(config), layout, kind, tmp_path / "folder")


@pytest.mark.parametrize("images", [(24, 40), (38, 18)])
def test_swin_reads_images_of_another_size_as_transformers_does(images, tmp_path):
    weights, x = redrawn_weights(SWIN), normal(1, (2, 3, *images))
    theirs = by_transformers(weights, SwinForImageClassification, tmp_path / "folder")
    logits, _ = model_of(weights)(x)
    np.testing.assert_allclose(logits, theirs(torch.tensor(x)).logits.detach(), rtol=1e-10, atol=1e-10)


def test_both_heads_of_deit_are_those_of_transformers(tmp_path):
    weights, x = redrawn_weights(DEIT), normal(1, (2, 3, 12, 12))
    theirs = by_transformers(weights, DeiTForImageClassificationWithTeacher, tmp_path / "folder")
    (cls, dist), _ = model_of(weights).logits_by_head(x)
    found = theirs(torch.tensor(x))
    np.testing.assert_allclose(cls, found.cls_logits.detach(), rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(dist, found.distillation_logits.detach(), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", CONFIGS)
def test_folders_that_transformers_writes_are_read_as_what_was_written(name, tmp_path):
    kind, _ = KINDS[type(CONFIGS[name])]
    assert_read_as_written(redrawn_weights(CONFIGS[name], "float32"), kind, tmp_path)
