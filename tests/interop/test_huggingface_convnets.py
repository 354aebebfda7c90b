import json
from dataclasses import replace

import numpy as np
import pytest
from small_weights import weights_of_model
from strategies import redrawn

import tinyvit
from tinyvit import interop
from tinyvit.functional.patches import as_pair
from tinyvit.models import BiTConfig, ResNetConfig, build
from tinyvit.tensors import load_tensors

SMALL = dict(img_size=16, num_classes=3, depths=(2, 1), stem="conv7")
RESNET = ResNetConfig(**SMALL, width=4)
CONFIGS = {
    "basic": RESNET,
    "bottleneck": ResNetConfig(**SMALL | dict(in_chans=1, img_size=(16, 12)), block="bottleneck", width=4),
    "no classes": replace(RESNET, num_classes=0),
    "bit": BiTConfig(**SMALL, width=8, num_groups=4),
    "bit, same": BiTConfig(**SMALL, width=8, num_groups=4, padding="same"),
    "bit, norms after": BiTConfig(**SMALL, width=8, num_groups=4, padding="same", preactivation=False),
}


def weights_of(config, **changes):
    model = redrawn(build(config))
    for name, buffer in model.named_buffers():
        buffer.data = np.arange(1.0, 1 + buffer.size) * (0.1 if name.endswith("mean") else 1)
    weights = weights_of_model(model)
    return weights._replace(preprocessing=replace(weights.preprocessing, **changes))


@pytest.mark.parametrize("name", CONFIGS)
def test_what_was_written_is_read_again_bit_for_bit(name, folder):
    weights = weights_of(CONFIGS[name])
    read = interop.load(folder(CONFIGS[name]))
    assert (read.config, read.preprocessing, read.notes) == (weights.config, weights.preprocessing, ())
    assert read.state.keys() == weights.state.keys()
    for key, array in weights.state.items():
        np.testing.assert_array_equal(read.state[key], array, err_msg=key)


def test_a_folder_is_loaded_as_a_model_with_its_classes(folder):
    model, image = tinyvit.load(folder()), np.zeros((1, 16, 16, 3), "uint8")
    assert type(model).__name__ == "ResNet" and model.classes == ("kind 0", "kind 1", "kind 2")
    np.testing.assert_allclose(model.predict(image).sum(), 1, rtol=1e-6)


def test_the_counter_of_batches_is_written_for_pytorch_and_not_read(folder):
    tensors = load_tensors(folder() / "model.safetensors")
    counters = [name for name in tensors if name.endswith("num_batches_tracked")]
    assert len(counters) == sum(name.endswith("running_var") for name in tensors) == 8
    assert {tensors[name].dtype.name for name in counters} == {"int64"}


@pytest.mark.parametrize("about, message", [
    (dict(hidden_sizes=[4, 12]), r"hidden_sizes \[4, 12\]; expected \[4, 8\], which double from stage to stage"),
    (dict(downsample_in_first_stage=True), "downsample_in_first_stage True; expected False"),
    (dict(layer_type="wide"), "layer_type 'wide'; expected 'basic' or 'bottleneck'"),
    (dict(hidden_act="gelu"), "hidden_act 'gelu'; expected 'relu'"),
    (dict(depths=[2, 1, 1]), "config.json contradicts the weights: stages 3, but the weights have 2"),
    (dict(depths=[2, 2]), "missing: resnet.encoder.stages.1.layers.1"),
    (dict(layer_type="bottleneck", hidden_sizes=[16, 32]), "are not those of this model in Hugging Face's layout"),
    (dict(depths="2"), r"config.json has depths '2' \(expected"),
    (dict(num_channels=4), r"misshapen: resnet.embedder.embedder.convolution.weight \(expected \(4, 4, 7, 7\)"),
    (dict(id2label={"0": "a"}), "num_labels 1, but the weights have 3"),
])  # fmt: skip
def test_a_config_that_does_not_fit_is_refused_in_one_line(about, message, folder):
    with pytest.raises(ValueError, match=message) as caught:
        interop.load(folder(**about))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("about, message", [
    (dict(global_padding="VALID"), "global_padding 'VALID' and embedding_dynamic_padding False"),
    (dict(embedding_dynamic_padding=True), "global_padding None and embedding_dynamic_padding True"),
    (dict(width_factor=2), "width_factor 2; expected 1"),
    (dict(num_groups=3), "width 8 is not divisible by num_groups 3"),
])  # fmt: skip
def test_a_bit_that_ours_has_no_place_for_is_refused_in_one_line(about, message, folder):
    with pytest.raises(ValueError, match=message) as caught:
        interop.load(folder(CONFIGS["bit"], **about))
    assert "\n" not in str(caught.value)


def test_missing_and_unexpected_arrays_are_named_as_the_file_spells_them(folder):
    def edit(tensors):
        del tensors["resnet.encoder.stages.0.layers.1.layer.0.normalization.running_var"]
        tensors["resnet.more"] = np.ones(3, "float32")

    with pytest.raises(ValueError, match=r"missing: resnet\.encoder\S+running_var; unexpected: resnet\.more"):
        interop.load(folder(edit=edit))


@pytest.mark.parametrize("config, message", [
    (replace(RESNET, stem="conv3"), "has no place for stem 'conv3'"),
    (replace(CONFIGS["bit"], epsilon="deviation", std_eps=1e-5), "epsilon .deviation.*, std_eps 1e-05"),
    (replace(CONFIGS["bit"], width=12), r"width 12 \(expected a multiple of 8\)"),
    (replace(CONFIGS["bit"], preactivation=False), "padding 'symmetric' without preactivation"),
])  # fmt: skip
def test_what_hugging_face_has_no_place_for_is_refused_before_anything_is_written(config, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        interop.save(weights_of(config), tmp_path / "theirs", "huggingface")
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("preprocessor, size, crop", [
    ({"size": {"shortest_edge": 224}, "crop_pct": 0.875}, (224, 224), 0.875),  # ConvNextImageProcessor
    ({"size": 224}, (224, 224), 0.875),
    ({"size": {"shortest_edge": 384}}, (224, 224), None),
    ({"size": {"shortest_edge": 448}, "do_center_crop": True, "crop_size": {"height": 448, "width": 448}},
     (448, 448), 1.0),
    ({"size": {"height": 32, "width": 48}}, (32, 48), None),
])  # fmt: skip
def test_images_have_the_size_that_their_processor_makes(preprocessor, size, crop, folder):
    path = folder()
    (path / "preprocessor_config.json").write_text(json.dumps(preprocessor))
    read = interop.load(path)
    assert as_pair(read.config.img_size) == read.preprocessing.img_size == size
    assert read.preprocessing.crop == crop
