"""Folders of Hugging Face for other architectures than ViT: read back bit for bit, or refused in one line."""

import json
from dataclasses import replace

import numpy as np
import pytest
from layouts import assert_equal_state
from small_weights import weights_of_model
from strategies import redrawn

from tinyvit import interop
from tinyvit.functional.patches import as_pair
from tinyvit.interop import huggingface
from tinyvit.models import BiTConfig, ClipConfig, DeiTConfig, Dinov2Config, ResNetConfig, SwinConfig, ViViTConfig, build
from tinyvit.models.registry import create_model
from tinyvit.tensors import load_tensors

SMALL = dict(img_size=16, num_classes=3, depths=(2, 1), stem="conv7")
RESNET, BIT = ResNetConfig(**SMALL, width=4), BiTConfig(**SMALL, width=8, num_groups=4)
VIT = dict(img_size=8, patch_size=4, embed_dim=8, depth=2, num_heads=2)
DEIT = DeiTConfig(**VIT, num_classes=3, norm_eps=1e-12)
DINO = Dinov2Config(**VIT, num_classes=0, mlp_ratio=4.0)
QWEN = create_model("qwen2_5_vl_vision_small", num_classes=0, tubelet_frames=2, device="meta").config
VIVIT = ViViTConfig(**VIT, num_classes=3, frames=4, activation="gelu_tanh")
SWIN = SwinConfig(img_size=16, num_classes=3, embed_dim=4, depths=(2, 1), num_heads=(1, 2), mlp_ratio=2.0)
CONFIGS = {
    "basic": RESNET,
    "bottleneck": ResNetConfig(**SMALL | dict(in_chans=1, img_size=(16, 12)), block="bottleneck", width=4),
    "resnet, no classes": replace(RESNET, num_classes=0),
    "bit": BIT,
    "bit, same": replace(BIT, padding="same"),
    "bit, norms after": replace(BIT, padding="same", preactivation=False),
    "dinov2": DINO,
    "dinov2, gated, registers": replace(DINO, swiglu=True, num_registers=2, in_chans=1, img_size=(8, 12)),
    "deit": DEIT,
    "deit, no classes": replace(DEIT, num_classes=0, img_size=(8, 12), in_chans=1),
    "qwen": replace(QWEN, img_size=(8, 16), full_attention=(0,)),
    "swin": SWIN,
    "swin, no classes": replace(SWIN, num_classes=0, img_size=(24, 18), in_chans=1, drop_path_rate=0.2),
    "vivit": VIVIT,
    "vivit, no classes": replace(VIVIT, num_classes=0, activation="gelu", tubelet_frames=4),
    "clip": ClipConfig(**VIT, text_dim=12, text_depth=1, text_heads=3, context_length=5, vocabulary=("a", "b")),
}


def weights_of(config):
    model = redrawn(build(config))
    for name, buffer in model.named_buffers():
        buffer.data = np.arange(1.0, 1 + buffer.size) * (0.1 if name.endswith("mean") else 1)
    return weights_of_model(model)


@pytest.mark.parametrize("name", CONFIGS)
def test_what_was_written_is_read_again_bit_for_bit(name, folder):
    weights = weights_of(CONFIGS[name])
    read = interop.load(folder(weights))
    notes = ("the mask token isn't used",) if name.startswith("dinov2") else ()
    assert (read.config, read.preprocessing, read.notes) == (weights.config, weights.preprocessing, notes)
    assert_equal_state(read.state, {name: array.astype("float32") for name, array in weights.state.items()})


def test_the_counter_of_batches_is_written_for_pytorch_and_not_read(folder):
    tensors = load_tensors(folder(weights_of(RESNET)) / "model.safetensors")
    counters = [name for name in tensors if name.endswith("num_batches_tracked")]
    assert len(counters) == sum(name.endswith("running_var") for name in tensors) == 8
    assert {tensors[name].dtype.name for name in counters} == {"int64"}


def test_the_index_of_transformers_4_is_not_read(folder):
    def edit(tensors):
        tensors["swin.encoder.layers.0.blocks.0.attention.self.relative_position_index"] = np.zeros((16, 16), "int64")

    assert interop.load(folder(weights_of(SWIN), edit)).config == SWIN


@pytest.mark.parametrize("name, about, message", [
    ("basic", dict(hidden_sizes=[4, 12]), r"hidden_sizes is \(4, 12\); expected \(4, 8\)"),
    ("basic", dict(downsample_in_first_stage=True), "downsample_in_first_stage is True; expected False"),
    ("basic", dict(layer_type="wide"), "layer_type is 'wide'; expected 'basic' or 'bottleneck'"),
    ("basic", dict(hidden_act="gelu"), "hidden_act is 'gelu'; expected 'relu'"),
    ("basic", dict(depths=[2, 2]), "missing: resnet.encoder.stages.1.layers.1"),
    ("basic", dict(layer_type="bottleneck", hidden_sizes=[16, 32]), "are not those of this model in Hugging Face's"),
    ("basic", dict(depths="2"), r"config.json has depths '2' \(expected"),
    ("basic", dict(num_channels=4), r"misshapen: resnet.embedder.embedder.convolution.weight \(expected \(4, 4, 7"),
    ("basic", dict(id2label={"0": "a"}), r"misshapen: classifier.1.weight \(expected \(1, 8\), got \(3, 8\)\)"),
    ("bit", dict(global_padding="VALID"), "global_padding is 'VALID'; expected None or 'same' or 'SAME'"),
    ("bit", dict(embedding_dynamic_padding=True), "embedding_dynamic_padding is True; expected False"),
    ("bit", dict(width_factor=2), "width_factor is 2; expected 1"),
    ("bit", dict(num_groups=3), "width 8 is not divisible by num_groups 3"),
    ("qwen", dict(hidden_act="gelu"), "hidden_act is 'gelu'; expected 'silu'"),
    ("qwen", dict(fullatt_block_indexes=[4]), "full_attention must name blocks from 0 to 3, got"),
    ("swin", dict(depths=[2, 1, 1], num_heads=[1, 2, 4]), r"missing: swin\.encoder\.layers\.1\.downsample"),
    ("swin", dict(window_size=3), r"misshapen: swin\.encoder.*relative_position_bias_table"),
    ("swin", dict(use_absolute_embeddings=True), "use_absolute_embeddings is True; expected False"),
    ("swin", dict(num_heads=[1, 3]), "the width 8 of stage 1 is not divisible by its 3 heads"),
    ("dinov2", dict(use_swiglu_ffn=True), r"missing: encoder\.layer\.0\.mlp\.weights_in\.weight"),
    ("dinov2", dict(num_register_tokens=4), r"missing: embeddings\.register_tokens"),
    ("dinov2", dict(mlp_ratio=2), r"misshapen: encoder\.layer\.0\.mlp\.fc1\.weight \(expected \(16, 8\), got"),
    ("dinov2", dict(layerscale_value="1"), r"config.json has layerscale_value '1' \(expected"),
])  # fmt: skip
def test_a_config_that_does_not_fit_is_refused_in_one_line(name, about, message, folder):
    with pytest.raises(ValueError, match=message) as caught:
        interop.load(folder(weights_of(CONFIGS[name]), **about))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("config, kind, message", [
    (DEIT, "classifier.weight", "expected DeiTForImageClassificationWithTeacher"),
    (DINO, "classifier.weight", "class token and the mean of the patches side by side.* expected Dinov2Model"),
    (RESNET, "resnet.more", r"unexpected: resnet\.more"), (SWIN, "swin.more", r"unexpected: swin\.more"),
])  # fmt: skip
def test_arrays_that_ours_has_no_place_for_are_refused(config, kind, message, folder):
    with pytest.raises(ValueError, match=message):
        interop.load(folder(weights_of(config), lambda tensors: tensors.update({kind: np.ones((3, 8), "float32")})))


@pytest.mark.parametrize("config, message", [
    (replace(RESNET, stem="conv3"), "has no place for stem 'conv3'"),
    (replace(BIT, epsilon="deviation", std_eps=1e-5), "epsilon 'deviation', only for 'variance'"),
    (replace(BIT, width=12), "width 12, only for multiples of 8"),
    (replace(BIT, preactivation=False), "padding 'symmetric', only for 'same'"),
    (replace(QWEN, num_classes=3), "no place for num_classes 3, only for 0"),
    (replace(DEIT, num_registers=2), "has no place for num_registers 2"),
    (replace(DEIT, positions="rope"), "has no place for positions 'rope'"),
    (replace(DINO, num_classes=3), "no place for num_classes 3, only for 0"),
    (replace(DINO, mlp_ratio=2.5), "no place for mlp_ratio 2.5, only for 2"),
    (replace(VIVIT, global_pool="avg"), "no place for global_pool 'avg', only for 'token'"),
    (replace(CONFIGS["clip"], img_size=(8, 12)), r"no place for img_size \(8, 12\), only for 8"),
    (replace(SWIN, depths=(1, 1, 1), num_heads=(1, 1, 1)), "no place for a grid of 2×2 tokens in stage 2, which is"),
])  # fmt: skip
def test_what_hugging_face_has_no_place_for_is_refused_before_anything_is_written(config, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        interop.save(weights_of(config), tmp_path / "theirs", "huggingface")
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["deit", "dinov2", "vivit", "clip"])
def test_an_activation_that_transformers_does_not_have_is_refused(name, monkeypatch, tmp_path):
    monkeypatch.delitem(huggingface.TO_ACTIVATION, CONFIGS[name].activation)
    with pytest.raises(ValueError, match=f"has no place for activation '{CONFIGS[name].activation}', only for .*gelu"):
        interop.save(weights_of(CONFIGS[name]), tmp_path / "theirs", "huggingface")


@pytest.mark.parametrize("preprocessor, size, crop", [
    ({"size": {"shortest_edge": 224}, "crop_pct": 0.875}, (224, 224), 0.875),  # ConvNextImageProcessor
    ({"size": 224}, (224, 224), 0.875),
    ({"size": {"shortest_edge": 384}}, (224, 224), None),
    ({"size": {"shortest_edge": 448}, "do_center_crop": True, "crop_size": {"height": 448, "width": 448}},
     (448, 448), 1.0),
    ({"size": {"height": 32, "width": 48}}, (32, 48), None),
])  # fmt: skip
def test_images_have_the_size_that_their_processor_makes(preprocessor, size, crop, folder):
    path = folder(weights_of(RESNET))
    (path / "preprocessor_config.json").write_text(json.dumps(preprocessor))
    read = interop.load(path)
    assert as_pair(read.config.img_size) == read.preprocessing.img_size == size
    assert read.preprocessing.crop == crop
