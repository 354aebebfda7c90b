"""DeiT and Swin against Transformers, which reads the folders that we write, in float64."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from layouts import under_our_names
from small_weights import model_of, weights_of_model
from strategies import redrawn
from torch_autograd import assert_all_close, normal
from transformers import DeiTForImageClassificationWithTeacher, SwinForImageClassification
from transformers.utils import logging

from tinyvit import interop
from tinyvit.interop.huggingface_swin import SWIN as SWIN_LAYOUT
from tinyvit.interop.huggingface_vits import DEIT as DEIT_LAYOUT
from tinyvit.models import DeiTConfig, SwinConfig, build, create_model

pytestmark = pytest.mark.parity
logging.disable_progress_bar()

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
CLASSES = {DeiTConfig: DeiTForImageClassificationWithTeacher, SwinConfig: SwinForImageClassification}
LAYOUTS = {DeiTConfig: DEIT_LAYOUT, SwinConfig: SWIN_LAYOUT}


def weights_of(config, dtype="float64"):
    return weights_of_model(redrawn(build(config, dtype=dtype)))


def by_transformers(folder, config):
    """The model of Transformers without stochastic depth; every array was found."""
    model, found = CLASSES[type(config)].from_pretrained(folder, output_loading_info=True)
    assert not any(found.values()), found
    return model


@pytest.mark.parametrize("name", CONFIGS)
def test_logits_and_every_gradient_are_those_of_transformers(name, tmp_path):
    config = CONFIGS[name]
    weights = weights_of(config)
    interop.save(weights, tmp_path / "folder", "huggingface")
    theirs, ours = by_transformers(tmp_path / "folder", config).eval(), model_of(weights)
    assert theirs.num_parameters() == ours.num_parameters() and theirs.dtype == torch.float64
    images, dlogits = normal(1, (3, *ours.image_shape), (3, config.num_classes))
    leaf = torch.tensor(images, requires_grad=True)
    logits = theirs(leaf).logits
    logits.backward(torch.tensor(dlogits))
    expected = {name: parameter.grad.numpy() for name, parameter in theirs.named_parameters()}
    got, cache = ours(images)
    dimages = ours.backward(dlogits, cache)
    assert_all_close({"logits": got, "images": dimages},
                     {"logits": logits.detach().numpy(), "images": leaf.grad.numpy()})  # fmt: skip
    gradients = {name: parameter.grad for name, parameter in ours.named_parameters()}
    assert_all_close(gradients, under_our_names(LAYOUTS[type(config)], expected, config))


@pytest.mark.parametrize("images", [(24, 40), (38, 18)])
def test_swin_reads_images_of_another_size_as_transformers_does(images, tmp_path):
    weights = weights_of(SWIN)
    interop.save(weights, tmp_path / "folder", "huggingface")
    theirs, x = by_transformers(tmp_path / "folder", SWIN).eval(), normal(1, (2, 3, *images))
    logits, _ = model_of(weights)(x)
    np.testing.assert_allclose(logits, theirs(torch.tensor(x)).logits.detach(), rtol=1e-10, atol=1e-10)


def test_both_heads_of_deit_are_those_of_transformers(tmp_path):
    weights = weights_of(DEIT)
    interop.save(weights, tmp_path / "folder", "huggingface")
    theirs, x = by_transformers(tmp_path / "folder", DEIT).eval(), normal(1, (2, 3, 12, 12))
    (cls, dist), _ = model_of(weights).logits_by_head(x)
    found = theirs(torch.tensor(x))
    np.testing.assert_allclose(cls, found.cls_logits.detach(), rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(dist, found.distillation_logits.detach(), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", CONFIGS)
def test_folders_that_transformers_writes_are_read_as_what_was_written(name, tmp_path):
    weights = weights_of(CONFIGS[name], "float32")
    interop.save(weights, tmp_path / "ours", "huggingface")
    by_transformers(tmp_path / "ours", CONFIGS[name]).save_pretrained(tmp_path / "theirs")
    preprocessor = "preprocessor_config.json"  # which Transformers doesn't write beside a model
    (tmp_path / "theirs" / preprocessor).write_bytes((tmp_path / "ours" / preprocessor).read_bytes())
    for file in ("ours", "theirs"):
        read = interop.load(tmp_path / file)
        assert read.config == weights.config and read.preprocessing == weights.preprocessing
        for key, array in weights.state.items():
            np.testing.assert_array_equal(read.state[key], array, err_msg=key)
