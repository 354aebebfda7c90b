"""The names of Transformers 4, written out: Hugging Face's folders have them, whichever version reads them."""

import numpy as np
import pytest
import torch
from layouts import HUGGINGFACE
from small_weights import model_of
from ten_shapes import save_folder
from torch_autograd import normal
from transformers import ViTForImageClassification, ViTForMaskedImageModeling, ViTModel

from tinyvit.interop.huggingface import ACTIVATIONS

pytestmark = pytest.mark.parity

ABOUT = {
    "model_type": "vit", "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 12,
    "image_size": 6, "patch_size": 3, "num_channels": 3, "num_labels": 4, "torch_dtype": "float64",
    "architectures": ["ViTForImageClassification"],
}  # fmt: skip
OUTER = {
    "vit.embeddings.cls_token": (1, 1, 8),
    "vit.embeddings.position_embeddings": (1, 5, 8),
    "vit.embeddings.patch_embeddings.projection.weight": (8, 3, 3, 3),
    "vit.embeddings.patch_embeddings.projection.bias": (8,),
    "vit.layernorm.weight": (8,),
    "vit.layernorm.bias": (8,),
}
LAYER = {
    "layernorm_before.weight": (8,),
    "layernorm_before.bias": (8,),
    "attention.attention.query.weight": (8, 8),
    "attention.attention.query.bias": (8,),
    "attention.attention.key.weight": (8, 8),
    "attention.attention.key.bias": (8,),
    "attention.attention.value.weight": (8, 8),
    "attention.attention.value.bias": (8,),
    "attention.output.dense.weight": (8, 8),
    "attention.output.dense.bias": (8,),
    "layernorm_after.weight": (8,),
    "layernorm_after.bias": (8,),
    "intermediate.dense.weight": (12, 8),
    "intermediate.dense.bias": (12,),
    "output.dense.weight": (8, 12),
    "output.dense.bias": (8,),
}
CLASSIFIER = {"classifier.weight": (4, 8), "classifier.bias": (4,)}
POOLER = {"vit.pooler.dense.weight": (8, 8), "vit.pooler.dense.bias": (8,)}
BACKBONE = OUTER | {f"vit.encoder.layer.{i}.{name}": shape for i in range(2) for name, shape in LAYER.items()}
IMAGES = normal(1, (3, 3, 6, 6))


def random_arrays(shapes):
    return dict(zip(shapes, normal(0, *shapes.values(), scale=0.2), strict=True))


def without_prefix(arrays):
    return {name.removeprefix("vit."): array for name, array in arrays.items()}


def loaded(kind, folder, **options):
    """A model of Transformers in which every array was found."""
    model, found = kind.from_pretrained(folder, output_loading_info=True, **options)
    assert not found["missing_keys"] and not found["mismatched_keys"], found
    return model


@torch.no_grad()
def outputs(model, name):
    return model(torch.tensor(IMAGES))[name].numpy()


def test_a_classifier_is_what_transformers_makes_of_it(tmp_path):
    arrays = random_arrays(BACKBONE | CLASSIFIER)
    theirs = loaded(ViTForImageClassification, save_folder(tmp_path, arrays, ABOUT))
    read = HUGGINGFACE.read(arrays, ABOUT)
    assert read.config.norm_eps == 1e-12
    assert read.preprocessing.classes == tuple(theirs.config.id2label.values())
    np.testing.assert_allclose(model_of(read)(IMAGES)[0], outputs(theirs, "logits"), rtol=0, atol=1e-12)


def test_a_pooler_beside_a_classifier_is_ignored_with_a_note(tmp_path):
    arrays = random_arrays(BACKBONE | POOLER | CLASSIFIER)
    theirs = loaded(ViTForImageClassification, save_folder(tmp_path, arrays, ABOUT))
    read = HUGGINGFACE.read(arrays, ABOUT)
    assert "the pooler isn't used" in read.notes
    np.testing.assert_allclose(model_of(read)(IMAGES)[0], outputs(theirs, "logits"), rtol=0, atol=1e-12)


@pytest.mark.parametrize("prefix", [True, False])
def test_without_a_classifier_the_result_is_the_pooler_s_output(prefix, tmp_path):
    arrays = random_arrays(BACKBONE | POOLER)
    arrays, about = arrays if prefix else without_prefix(arrays), ABOUT | {"architectures": ["ViTModel"]}
    theirs = loaded(ViTModel, save_folder(tmp_path, arrays, about))
    read = HUGGINGFACE.read(arrays, about)
    assert (read.config.num_classes, read.config.head_hidden) == (0, 8)
    np.testing.assert_allclose(model_of(read)(IMAGES)[0], outputs(theirs, "pooler_output"), rtol=0, atol=1e-12)


@pytest.mark.parametrize("prefix", [True, False])
def test_without_classifier_and_pooler_the_result_is_the_class_token(prefix, tmp_path):
    arrays = random_arrays(BACKBONE)
    arrays, about = arrays if prefix else without_prefix(arrays), ABOUT | {"architectures": ["ViTModel"]}
    theirs = loaded(ViTModel, save_folder(tmp_path, arrays, about), add_pooling_layer=False)
    read = HUGGINGFACE.read(arrays, about)
    assert (read.config.num_classes, read.config.head_hidden) == (0, None)
    expected = outputs(theirs, "last_hidden_state")[:, 0]
    np.testing.assert_allclose(model_of(read)(IMAGES)[0], expected, rtol=0, atol=1e-12)


def test_the_backbone_of_a_masked_image_model_is_read(tmp_path):
    config = ViTForImageClassification.config_class(**ABOUT, encoder_stride=3)
    theirs = ViTForMaskedImageModeling(config).double()
    arrays = {name: parameter.detach().numpy() for name, parameter in theirs.named_parameters()}
    read = HUGGINGFACE.read(arrays, ABOUT)
    assert "the decoder isn't used" in read.notes
    expected = outputs(theirs.vit, "last_hidden_state")[:, 0]
    np.testing.assert_allclose(model_of(read)(IMAGES)[0], expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("activation", sorted(ACTIVATIONS))
def test_every_name_of_gelu_is_the_function_that_transformers_has(activation, tmp_path):
    arrays, about = random_arrays(BACKBONE | CLASSIFIER), ABOUT | {"hidden_act": activation}
    theirs = loaded(ViTForImageClassification, save_folder(tmp_path, arrays, about))
    read = HUGGINGFACE.read(arrays, about)
    np.testing.assert_allclose(model_of(read)(IMAGES)[0], outputs(theirs, "logits"), rtol=0, atol=1e-10)


def test_what_is_written_has_the_names_of_transformers_4():
    arrays = random_arrays(BACKBONE | CLASSIFIER)
    written, about, _ = HUGGINGFACE.write(HUGGINGFACE.read(arrays, ABOUT))
    assert written.keys() == arrays.keys()
    assert all(np.array_equal(written[name], array) for name, array in arrays.items())
    assert {name: about.get(name) for name in ABOUT} == ABOUT | {"num_labels": None}  # they are counted in id2label
