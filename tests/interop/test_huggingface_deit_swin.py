"""Folders of Hugging Face for DeiT, DINOv2 and Swin: read back bit for bit, or refused in one line."""

from dataclasses import replace

import numpy as np
import pytest
from small_weights import weights_of_model
from strategies import redrawn

import tinyvit
from tinyvit import interop
from tinyvit.functional.patches import as_pair
from tinyvit.models import DeiTConfig, Dinov2Config, SwinConfig, build

DEIT = DeiTConfig(img_size=8, patch_size=4, num_classes=3, embed_dim=8, depth=2, num_heads=2, norm_eps=1e-12)
SWIN = SwinConfig(img_size=16, num_classes=3, embed_dim=4, depths=(2, 1), num_heads=(1, 2), mlp_ratio=2.0)
DINO = Dinov2Config(img_size=8, patch_size=4, num_classes=0, embed_dim=8, depth=2, num_heads=2, mlp_ratio=4.0)
CONFIGS = {
    "dinov2": DINO,
    "dinov2, gated, registers": replace(DINO, swiglu=True, num_registers=2, in_chans=1, img_size=(8, 12)),
    "deit": DEIT,
    "deit, no classes": replace(DEIT, num_classes=0, img_size=(8, 12), in_chans=1),
    "swin": SWIN,
    "swin, no classes": replace(SWIN, num_classes=0, img_size=(24, 18), in_chans=1, drop_path_rate=0.2),
}


def weights_of(config):
    return weights_of_model(redrawn(build(config)))


@pytest.mark.parametrize("name", CONFIGS)
def test_what_was_written_is_read_again_bit_for_bit(name, folder):
    weights = weights_of(CONFIGS[name])
    read = interop.load(folder(CONFIGS[name]))
    notes = ("the mask token isn't used",) if name.startswith("dinov2") else ()
    assert (read.config, read.preprocessing, read.notes) == (weights.config, weights.preprocessing, notes)
    assert read.state.keys() == weights.state.keys()
    for key, array in weights.state.items():
        np.testing.assert_array_equal(read.state[key], array, err_msg=key)


@pytest.mark.parametrize("config", [DEIT, SWIN], ids=["deit", "swin"])
def test_a_folder_is_loaded_as_a_model_with_its_classes(config, folder):
    model = tinyvit.load(folder(config))
    assert type(model.config) is type(config) and model.classes == ("kind 0", "kind 1", "kind 2")
    image = np.zeros((1, *as_pair(config.img_size), 3), "uint8")
    np.testing.assert_allclose(model.predict(image).sum(), 1, rtol=1e-6)


def test_the_index_of_transformers_4_is_not_read(folder):
    def edit(tensors):
        tensors["swin.encoder.layers.0.blocks.0.attention.self.relative_position_index"] = np.zeros((16, 16), "int64")

    assert interop.load(folder(SWIN, edit)).config == SWIN


def test_a_deit_with_one_classifier_is_refused_with_what_is_expected(folder):
    def edit(tensors):
        for kind in ("weight", "bias"):
            tensors[f"classifier.{kind}"] = tensors.pop(f"cls_classifier.{kind}")

    with pytest.raises(ValueError, match="expected DeiTForImageClassificationWithTeacher"):
        interop.load(folder(DEIT, edit))


@pytest.mark.parametrize("about, message", [
    (dict(depths=[2, 1, 1], num_heads=[1, 2, 4]), "contradicts the weights: stages 3, but the weights have 2"),
    (dict(depths=[2, 2]), r"missing: swin\.encoder\.layers\.1\.blocks\.1"),
    (dict(window_size=3), r"misshapen: swin\.encoder.*relative_position_bias_table"),
    (dict(hidden_act="relu"), "hidden_act 'relu'; expected 'gelu'"),
    (dict(use_absolute_embeddings=True), "use_absolute_embeddings True; expected False"),
    (dict(num_heads=[1, 3]), "the width 8 of stage 1 is not divisible by its 3 heads"),
    (dict(id2label={"0": "a"}), "num_labels 1, but the weights have 3"),
    (dict(depths="2"), r"config.json has depths '2' \(expected"),
])  # fmt: skip
def test_a_config_that_does_not_fit_is_refused_in_one_line(about, message, folder):
    with pytest.raises(ValueError, match=message) as caught:
        interop.load(folder(SWIN, **about))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("config", [DEIT, SWIN], ids=["deit", "swin"])
def test_missing_and_unexpected_arrays_are_named_as_the_file_spells_them(config, folder):
    prefix = {"DeiTConfig": "deit", "SwinConfig": "swin"}[type(config).__name__]

    def edit(tensors):
        del tensors[f"{prefix}.layernorm.weight"]
        tensors[f"{prefix}.more"] = np.ones(3, "float32")

    with pytest.raises(ValueError, match=rf"missing: {prefix}\.layernorm\.weight; unexpected: {prefix}\.more"):
        interop.load(folder(config, edit))


@pytest.mark.parametrize("config, message", [
    (replace(DEIT, num_registers=2), "has no place for num_registers 2"),
    (replace(DEIT, positions="rope"), "has no place for positions 'rope'"),
    (replace(SWIN, depths=(1, 1, 1), num_heads=(1, 1, 1)), "no place for a grid of 2×2 tokens in stage 2, which is"),
])  # fmt: skip
def test_what_hugging_face_has_no_place_for_is_refused_before_anything_is_written(config, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        interop.save(weights_of(config), tmp_path / "theirs", "huggingface")
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("about, message", [
    (dict(use_swiglu_ffn=True), "use_swiglu_ffn True, but the weights have False"),
    (dict(num_register_tokens=4), "num_register_tokens 4, but the weights have 0"),
    (dict(hidden_size=16), "hidden_size 16, but the weights have 8"),
    (dict(mlp_ratio=2), "intermediate_size 16, but the weights have 32"),
    (dict(layerscale_value="1"), r"config.json has layerscale_value '1' \(expected"),
])  # fmt: skip
def test_a_config_of_dinov2_that_does_not_fit_is_refused_in_one_line(about, message, folder):
    with pytest.raises(ValueError, match=message) as caught:
        interop.load(folder(DINO, **about))
    assert "\n" not in str(caught.value)


def test_a_classifier_of_dinov2_is_refused_and_so_are_arrays_that_lack(folder):
    def add(tensors):
        tensors["classifier.weight"] = np.ones((3, 16), "float32")

    with pytest.raises(ValueError, match="class token and the mean of the patches side by side.* expected Dinov2Model"):
        interop.load(folder(DINO, add))


@pytest.mark.parametrize("change, message", [
    (dict(num_classes=3), "no place for num_classes 3, only for 0"),
    (dict(global_pool="avg"), "no place for global_pool 'avg', only for 'token'"),
    (dict(mlp_ratio=2.5), "no place for mlp_ratio 2.5"),
])  # fmt: skip
def test_a_dinov2_that_hugging_face_has_no_place_for_is_not_written(change, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        interop.save(weights_of(replace(DINO, **change)), tmp_path / "theirs", "huggingface")
    assert not (tmp_path / "theirs").exists()
