"""Hugging Face's layout against Transformers itself, which reads our files and writes files that we read."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from layouts import HUGGINGFACE
from small_weights import model_of
from ten_shapes import SHAPES, load_folder, random_weights, save_folder
from torch_autograd import assert_all_close, normal
from torch_vit import gradients_by_autograd, gradients_by_hand
from transformers import ViTForImageClassification, ViTModel
from transformers.utils import logging

pytestmark = pytest.mark.parity
logging.disable_progress_bar()


def sayable(weights):
    """The weights without what Hugging Face's layout cannot hold: the mean over patches, and a layer after a pooler."""
    config, state, classes = replace(weights.config, global_pool="token"), weights.state, weights.preprocessing.classes
    if config.head_hidden is not None:
        config, classes = replace(config, num_classes=0), ()
        state = {name: array for name, array in state.items() if not name.startswith("head.")}
    return weights._replace(config=config, state=state, preprocessing=replace(weights.preprocessing, classes=classes))


def exported(weights, folder):
    return save_folder(folder, *HUGGINGFACE.write(sayable(weights)))


def by_transformers(folder):
    """The model that Transformers loads from a folder; no array may be missing or unexpected."""
    tensors, about = load_folder(folder)
    options = {"attn_implementation": "sdpa", "output_loading_info": True}
    if "ViTModel" in about["architectures"]:
        model, found = ViTModel.from_pretrained(folder, add_pooling_layer="pooler.dense.bias" in tensors, **options)
    else:
        model, found = ViTForImageClassification.from_pretrained(folder, **options)
    assert not any(found.values()), found
    return model


class WholeModel(torch.nn.Module):
    """Transformers' model followed by the parts that `sayable` left out."""

    def __init__(self, theirs, weights):
        super().__init__()
        self.theirs, self.config = theirs, weights.config
        if self.config.head_hidden is not None:
            self.head = torch.nn.utils.skip_init(torch.nn.Linear, self.config.head_hidden, self.config.num_classes)
            last = {part: torch.tensor(weights.state[f"head.{part}"]) for part in ("weight", "bias")}
            self.head.load_state_dict(last, assign=True)

    def forward(self, images):
        if not self.config.num_classes:
            return self.theirs(images).last_hidden_state[:, 0]
        if self.config.head_hidden is not None:
            return self.head(self.theirs(images).pooler_output)
        if self.config.global_pool == "avg":
            return self.theirs.classifier(self.theirs.vit(images).last_hidden_state[:, 1:].mean(1))
        return self.theirs(images).logits


def under_our_names(arrays, about):
    """Arrays of a `WholeModel` by our names, as the layout reads them."""
    theirs = {name.removeprefix("theirs."): array for name, array in arrays.items() if name.startswith("theirs.")}
    behind = {name: array for name, array in arrays.items() if name.startswith("head.")}
    return HUGGINGFACE.read(theirs, about).state | behind


@pytest.mark.parametrize("shape", SHAPES)
def test_logits_and_every_gradient_are_those_of_transformers(shape, tmp_path):
    weights = random_weights(SHAPES[shape])
    config = weights.config
    folder = exported(weights, tmp_path)
    theirs = WholeModel(by_transformers(folder), weights)
    tensors, about = load_folder(folder)
    # Positions of other kinds have become one table, which is learned there.
    again = HUGGINGFACE.read(tensors, about)
    config = replace(again.config, global_pool=config.global_pool, num_classes=config.num_classes)
    head = {name: array for name, array in weights.state.items() if name.startswith("head.")}
    ours = model_of(again._replace(config=config, state=again.state | head))
    outputs = config.num_classes or config.embed_dim
    images, dlogits = normal(1, (3, *ours.embed.image_shape), (3, outputs))

    expected = gradients_by_autograd(theirs, images, dlogits)
    computed = {name: expected.pop(name) for name in ("logits", "images")}
    assert_all_close(gradients_by_hand(ours, images, dlogits), computed | under_our_names(expected, about))
    assert_all_close({"logits": model_of(weights)(images)[0]}, {"logits": computed["logits"]})


@pytest.mark.parametrize("shape", SHAPES)
def test_float32_logits_are_those_of_transformers_to_1e_5_of_the_largest(shape, tmp_path):
    weights = random_weights(SHAPES[shape], "float32")
    theirs = WholeModel(by_transformers(exported(weights, tmp_path)), weights)
    ours = model_of(weights)
    images = normal(1, (16, *ours.embed.image_shape)).astype("float32")
    with torch.no_grad():
        expected = theirs(torch.tensor(images)).numpy()
    assert expected.dtype == "float32"
    np.testing.assert_allclose(ours(images)[0], expected, rtol=0, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize("shape", SHAPES)
def test_files_and_array_names_of_transformers_are_read_as_what_was_written(shape, tmp_path):
    weights = sayable(random_weights(SHAPES[shape], "float32"))
    folder = exported(weights, tmp_path / "ours")
    theirs = by_transformers(folder)
    theirs.save_pretrained(tmp_path / "theirs")
    tensors, about = load_folder(tmp_path / "theirs")
    as_called = {name: parameter.detach().numpy() for name, parameter in theirs.named_parameters()}
    expected = HUGGINGFACE.read(*load_folder(folder))
    for arrays in (tensors, as_called):
        read = HUGGINGFACE.read(arrays, about)
        assert read.config == expected.config
        assert read.preprocessing == expected.preprocessing
        assert read.state.keys() == expected.state.keys()
        assert all(np.array_equal(read.state[name], expected.state[name]) for name in expected.state)
