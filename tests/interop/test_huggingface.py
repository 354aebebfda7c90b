"""Hugging Face's layout: it is read back unchanged, and unsupported models are refused with the reason."""

from dataclasses import replace
from math import floor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from layouts import CONFIG, HUGGINGFACE, JSON, assert_equal_state, example, logits_of, through_json
from strategies import weights

from tinyvit import ViT
from tinyvit.interop import Weights
from tinyvit.interop.huggingface import FIELDS
from tinyvit.interop.huggingface_config import DEFAULTS, crop_fraction
from tinyvit.interop.huggingface_vits import SPELLINGS

EXAMPLE = example()
TENSORS, ABOUT, PREPROCESSOR = HUGGINGFACE.write(EXAMPLE)
WITH_CLASSES = {"global_pool": "token", "num_classes": st.integers(1, 3), "head_hidden": None}
HEADLESS = {"global_pool": "token", "num_classes": 0}


def read(tensors=TENSORS, preprocessor=PREPROCESSOR, **fields):
    """The example with other arrays, another preprocessor or other fields of its config.json."""
    return HUGGINGFACE.read(tensors, through_json(ABOUT | fields), preprocessor)


@given(weights(positions="learned", **WITH_CLASSES) | weights(positions="learned", **HEADLESS))
def test_written_weights_are_read_back_bit_for_bit(written):
    tensors, about, preprocessor = HUGGINGFACE.write(written)
    again = HUGGINGFACE.read(tensors, through_json(about), through_json(preprocessor))
    assert again.config == written.config
    assert again.preprocessing == written.preprocessing
    assert again.notes == ()
    assert_equal_state(again.state, written.state)


@given(weights("float64", positions=st.sampled_from(["learned_2d", "sincos_1d", "sincos_2d", "none"]), **WITH_CLASSES))
def test_positions_of_other_kinds_become_one_table_with_the_same_logits(written):
    again = HUGGINGFACE.read(*HUGGINGFACE.write(written))
    assert again.config == replace(written.config, positions="learned")
    np.testing.assert_array_equal(logits_of(again), logits_of(written))


@given(st.sets(st.sampled_from(sorted(TENSORS))), st.booleans())
def test_each_array_may_have_either_spelling_with_the_prefix_or_without(others, prefix):
    def respelled(name):
        for new, old in SPELLINGS.items():
            name = name.replace(old, new.replace("\\", "").replace("^", ""))
        return name

    tensors = {respelled(name) if name in others else name: x for name, x in TENSORS.items()}
    tensors = {name if prefix else name.removeprefix("vit."): x for name, x in tensors.items()}
    assert_equal_state(read(tensors).state, EXAMPLE.state)


def test_missing_unexpected_and_misshapen_names_are_listed_together_as_they_are_spelled():
    tensors = dict(TENSORS)
    del tensors["vit.layernorm.bias"], tensors["vit.encoder.layer.0.attention.attention.key.weight"]
    tensors |= {"vit.extra": np.zeros(1), "classifier.bias": np.zeros(7)}
    with pytest.raises(ValueError) as error:
        read(tensors)
    for part in ("missing: vit.encoder.layer.0.attention.attention.key.weight, vit.layernorm.bias",
                 "unexpected: vit.extra", "misshapen: classifier.bias (expected (3,), got (7,))"):  # fmt: skip
        assert part in str(error.value)


@pytest.mark.parametrize("field, value, name", [
    ("hidden_size", 384, "misshapen: vit.embeddings.cls_token (expected (1, 1, 384), got (1, 1, 192))"),
    ("num_hidden_layers", 2, "missing: vit.encoder.layer.1.layernorm_before.weight"),
    ("intermediate_size", 64, "misshapen: vit.encoder.layer.0.intermediate.dense.weight (expected (64, 192)"),
    ("num_channels", 1, "projection.weight (expected (192, 1, 4, 4), got (192, 3, 4, 4))"),
    ("patch_size", 2, "projection.weight (expected (192, 3, 2, 2), got (192, 3, 4, 4))"),
    ("qkv_bias", False, "unexpected: vit.encoder.layer.0.attention.attention.query.bias"),
    ("id2label", {"0": "a"}, "misshapen: classifier.weight (expected (1, 192), got (3, 192))"),
])  # fmt: skip
def test_a_config_json_that_contradicts_the_weights_is_refused_with_both(field, value, name):
    with pytest.raises(ValueError, match="not those of this model in Hugging Face's layout, with ") as error:
        read(**{field: value})
    assert name in str(error.value)


def test_missing_fields_have_the_defaults_of_transformers():
    about = {"hidden_size": 192, "num_hidden_layers": 1, "num_attention_heads": 3, "intermediate_size": 48,
             "image_size": 8, "patch_size": 4}  # fmt: skip
    assert HUGGINGFACE.read(TENSORS, about).config == replace(CONFIG, norm_eps=1e-12)
    assert HUGGINGFACE.read(TENSORS, about).preprocessing.classes == ("LABEL_0", "LABEL_1", "LABEL_2")


def test_labels_are_made_unique_and_there_is_one_for_each_class():
    assert read(id2label={"0": "crane", "1": 8, "2": "crane"}).preprocessing.classes == ("crane", "8", "crane (2)")
    for labels in ({"0": 7, "1": None, "2": 9}, {"0": "a", "2": "b", "3": "c"}):
        with pytest.raises(ValueError, match="config.json has class names .*; expected one for each of 3"):
            read(id2label=labels)


def test_a_multi_label_model_is_noted_since_softmax_expects_one_label_per_image():
    several = read(problem_type="multi_label_classification")
    assert any("problem_type 'multi_label_classification'" in note for note in several.notes)
    assert read(problem_type="single_label_classification").notes == read(problem_type=None).notes == ()


def test_a_pooler_with_another_activation_is_ignored_with_a_note():
    tensors = {name.removeprefix("vit."): x for name, x in TENSORS.items() if not name.startswith("classifier")}
    tensors |= {"pooler.dense.weight": np.zeros((5, 192)), "pooler.dense.bias": np.zeros(5)}
    assert read(tensors, pooler_output_size=5).config.head_hidden == 5
    other = read(tensors, pooler_output_size=5, pooler_act="relu")
    assert other.config.head_hidden is None and "the pooler isn't used" in other.notes
    with pytest.raises(ValueError, match=r"misshapen: pooler.dense.weight \(expected \(6, 192\), got \(5, 192\)\)"):
        read(tensors, pooler_output_size=6)


def test_without_a_classifier_there_are_no_classes_whatever_config_json_says():
    again = read({name: x for name, x in TENSORS.items() if not name.startswith("classifier")})
    assert again.config.num_classes == 0 and again.preprocessing.classes == ()


def test_a_centre_crop_that_is_not_square_is_refused():
    config = replace(CONFIG, img_size=(8, 12))
    prepared = replace(EXAMPLE.preprocessing, img_size=(8, 12), crop=1.0)
    with pytest.raises(ValueError, match="can't cut 8×12 pixels"):
        HUGGINGFACE.write(EXAMPLE._replace(config=config, state=ViT(config).state_dict(), preprocessing=prepared))


@pytest.mark.parametrize("preprocessor, expected", [
    ({"do_normalize": False}, {"mean": (0.0,) * 3, "std": (1.0,) * 3}),
    ({"do_rescale": False, "image_mean": 127.5, "image_std": [51, 51, 51]}, {"mean": (0.5,) * 3, "std": (0.2,) * 3}),
    ({"resample": 3, "size": 8}, {"resample": "bicubic", "crop": None}),
    ({"size": {"shortest_edge": 10}, "do_center_crop": True, "crop_size": 8}, {"crop": 0.8}),
    ({"size": {"shortest_edge": 8}, "do_center_crop": True, "crop_pct": 0.95, "crop_size": 8}, {"crop": 0.95}),
])  # fmt: skip
def test_images_are_prepared_as_the_preprocessor_says(preprocessor, expected):
    again = read(preprocessor=preprocessor)
    assert {name: getattr(again.preprocessing, name) for name in expected} == expected
    assert again.notes == ()


@pytest.mark.parametrize("preprocessor, note", [
    (None, "no preprocessor_config.json"),
    ({"size": {"height": 16, "width": 16}}, "made 8×8"),
    ({"do_resize": False}, "images are resized, though"),
    ({"size": {"height": 10, "width": 10}, "do_center_crop": True, "crop_size": 8}, "images are stretched"),
])  # fmt: skip
def test_deviations_from_the_preprocessor_are_noted(preprocessor, note):
    assert any(note in line for line in read(preprocessor=preprocessor).notes)


@pytest.mark.parametrize("side", [8, 13, 192, 224, 384])
def test_an_image_is_resized_before_a_crop_to_exactly_the_preprocessors_size(side):
    for shortest in range(side, 2 * side):
        preprocessor = DEFAULTS | {"do_center_crop": True, "size": {"shortest_edge": shortest}, "crop_size": side}
        share, notes = crop_fraction(preprocessor, (side, side))
        assert share == pytest.approx(side / shortest, rel=1e-15) and notes == ()
        assert floor(side / share) == shortest
        assert crop_fraction(preprocessor | {"crop_pct": 1e-320}, (side, side)) == (share, ())


def test_a_crop_that_is_not_square_is_stretched_with_a_note():
    crop_size = {"height": 16, "width": 24}
    preprocessor = DEFAULTS | {"do_center_crop": True, "size": {"shortest_edge": 24}, "crop_size": crop_size}
    share, (note,) = crop_fraction(preprocessor, (16, 24))
    assert share is None and note.startswith("images are stretched")


@pytest.mark.parametrize("field, value, message", [
    ("rescale_factor", 0, "rescale_factor 0 .expected a positive finite number"),
    ("resample", 9, "resample 9 .expected an int from 0 to 5"),
])  # fmt: skip
def test_a_preprocessor_that_leaves_nothing_of_an_image_or_asks_for_an_unknown_filter_is_refused(field, value, message):
    with pytest.raises(ValueError, match=message):
        read(preprocessor={field: value})


@given(st.sampled_from(sorted(ABOUT.keys() | PREPROCESSOR.keys() | FIELDS.keys() | {"crop_pct"})), JSON,
       st.none() | st.sampled_from(sorted(TENSORS)))  # fmt: skip
def test_any_value_in_the_json_files_is_read_or_refused_with_one_line(name, value, lost):
    about, preprocessor = dict(ABOUT), dict(PREPROCESSOR) | {"do_center_crop": True}
    (preprocessor if name in PREPROCESSOR or name == "crop_pct" else about)[name] = value
    try:
        tensors = {name: x for name, x in TENSORS.items() if name != lost}
        assert isinstance(HUGGINGFACE.read(tensors, about, preprocessor), Weights)
    except ValueError as error:
        assert "\n" not in str(error)
