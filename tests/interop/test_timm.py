"""timm's layout: it is read back unchanged, and unsupported models are refused with the reason."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from layouts import CONFIG, JSON, assert_equal_state, example, logits_of, through_json
from strategies import weights

from tinyvit import ViT
from tinyvit.interop import Weights, timm

EXAMPLE = example()
SAYABLE = {"norm_eps": 1e-6, "head_hidden": None}
TOLD_BY_SHAPES = SAYABLE | {"positions": "learned", "activation": "gelu", "global_pool": "token", "drop_rate": 0.0,
                            "attn_drop_rate": 0.0}  # fmt: skip


@given(weights(positions=st.sampled_from(["learned", "none"]), drop_path_rate=st.sampled_from([0.0, 0.2]), **SAYABLE))
def test_written_weights_are_read_back_bit_for_bit(written):
    tensors, about = timm.write(written)
    read = timm.read(tensors, through_json(about))
    assert read.config == written.config
    assert read.preprocessing == written.preprocessing
    assert read.notes == ()
    assert_equal_state(read.state, written.state)


@given(weights(**TOLD_BY_SHAPES))
def test_shapes_alone_determine_all_but_the_heads_and_the_sides_of_a_non_square_image(written):
    tensors, _ = timm.write(written)
    rows, columns = written.config.grid
    size = None if rows == columns else written.config.img_size
    read = timm.read(tensors, num_heads=written.config.num_heads, img_size=size)
    assert read.config == written.config
    assert_equal_state(read.state, written.state)
    assert read.preprocessing.classes == tuple(str(i) for i in range(written.config.num_classes))
    assert any("normalised" in note for note in read.notes) and any("head reads" in note for note in read.notes)


@given(weights(dtype="float64", positions=st.sampled_from(["learned_2d", "sincos_1d", "sincos_2d"]), **SAYABLE))
def test_positions_of_other_kinds_become_one_table_with_the_same_logits(written):
    tensors, about = timm.write(written)
    read = timm.read(tensors, through_json(about))
    assert read.config == replace(written.config, positions="learned")
    np.testing.assert_array_equal(logits_of(read), logits_of(written))


def test_positions_without_one_for_the_class_token_get_a_zero():
    tensors, about = timm.write(EXAMPLE)
    table = tensors["pos_embed"] = tensors["pos_embed"][:, 1:]
    read = timm.read(tensors, about)
    assert not read.state["pos_embed"][:, 0].any()
    np.testing.assert_array_equal(read.state["pos_embed"][:, 1:], table)
    assert any("no_embed_class" in note for note in read.notes)
    alone = timm.read(tensors)
    assert alone.config.grid == (2, 2) and any("2 rows of 2 are assumed" in note for note in alone.notes)


def test_a_norm_after_pooling_the_class_token_equals_one_before_it_and_one_after_the_mean_is_refused():
    tensors, about = timm.write(EXAMPLE)
    after = {name.replace("norm.", "fc_norm.") if name.startswith("norm.") else name: x for name, x in tensors.items()}
    assert_equal_state(timm.read(after, about).state, EXAMPLE.state)
    for about in (None, {"architecture": "vit_tiny_patch16_224", "global_pool": "avg"}):
        with pytest.raises(ValueError, match="a mean of norms is not the norm of a mean"):
            timm.read(after, about)


def test_the_hidden_layer_of_early_versions_is_read():
    read = timm.read(ViT(replace(CONFIG, head_hidden=5)).state_dict())
    assert (read.config.head_hidden, read.config.num_heads) == (5, 3)


@pytest.mark.parametrize("name", ["blocks.0.attn.q_norm.weight", "norm_pre.weight", "dist_token", "reg_token"])
def test_vits_with_other_parts_are_refused_with_the_names_of_these(name):
    with pytest.raises(ValueError, match=f"not those of this model in timm's layout: unexpected: {name}"):
        timm.read(EXAMPLE.state | {name: np.zeros(3)})


def test_a_vit_without_class_token_and_one_with_a_gated_mlp_are_refused():
    with pytest.raises(ValueError, match="missing: cls_token"):
        timm.read({name: x for name, x in EXAMPLE.state.items() if name != "cls_token"})
    with pytest.raises(ValueError, match=r"misshapen: blocks.0.mlp.fc2.weight \(expected .192, 48., got .192, 24."):
        timm.read(EXAMPLE.state | {"blocks.0.mlp.fc2.weight": np.zeros((192, 24))})


@pytest.mark.parametrize("name", ["vit_base_patch32_clip_quickgelu_224", "vit_base_patch16_rope_224"])
def test_a_vit_that_differs_in_ways_that_no_shape_shows_is_refused_by_name(name):
    with pytest.raises(ValueError, match=name):
        timm.read(EXAMPLE.state, {"architecture": f"{name}.in1k"})


@pytest.mark.parametrize(
    "field, value",
    {"embed_dim": 384, "depth": 12, "in_chans": 1, "patch_size": [4, 2], "qkv_bias": False, "num_classes": 1000,
     "mlp_ratio": 4.0}.items(),
)  # fmt: skip
def test_a_config_json_that_contradicts_the_weights_is_refused(field, value):
    tensors, about = timm.write(EXAMPLE)
    about["model_args"][field] = value
    with pytest.raises(ValueError, match="the arrays are not those of this model in timm's layout"):
        timm.read(tensors, about)


def test_an_image_size_that_contradicts_the_positions_is_refused_unless_the_right_one_is_given():
    tensors, about = timm.write(EXAMPLE)
    about["model_args"]["img_size"] = 16
    with pytest.raises(ValueError, match=r"misshapen: pos_embed \(expected \(1, 17, 192\), got \(1, 5, 192\)\)"):
        timm.read(tensors, about)
    assert timm.read(tensors, about, img_size=8).config == CONFIG


@pytest.mark.parametrize("size", [0, (0, 8), (), -4])
def test_a_size_of_zero_is_refused_and_not_taken_as_missing(size):
    for about in (None, timm.write(EXAMPLE)[1]):
        with pytest.raises(ValueError, match=r"expected a size as a positive int or \(height, width\), got"):
            timm.read(EXAMPLE.state, about, img_size=size)


def test_the_number_of_classes_beside_the_arguments_is_that_of_the_weights():
    tensors, about = timm.write(EXAMPLE)
    about["pretrained_cfg"]["num_classes"] = 1000  # of what the weights were once pretrained on
    assert timm.read(tensors, about).config.num_classes == 3
    del about["model_args"]["num_classes"]
    with pytest.raises(ValueError, match=r"misshapen: head.weight \(expected \(1000, 192\), got \(3, 192\)\)"):
        timm.read(tensors, about | {"num_classes": 1000})


def test_patches_that_do_not_form_a_square_need_the_size_of_the_images():
    state = EXAMPLE.state | {"pos_embed": np.zeros((1, 7, 192))}
    with pytest.raises(ValueError, match="6 patches don't form a square.*img_size"):
        timm.read(state)
    assert timm.read(state, img_size=(8, 12)).config.grid == (2, 3)
    without = {name: x for name, x in state.items() if name != "pos_embed"}
    with pytest.raises(ValueError, match="no positions.*give the size of the images: --img-size"):
        timm.read(without)
    assert timm.read(without, img_size=8).config.positions == "none"


def test_heads_come_from_the_arguments_the_architecture_the_caller_or_the_width_in_this_order():
    state, name = EXAMPLE.state, {"architecture": "vit_tiny_patch16_224.x", "global_pool": "token",
                                  "pretrained_cfg": {"mean": [0.5] * 3, "std": [0.5] * 3, "input_size": [3, 8, 8]}
                                  }  # fmt: skip
    assert timm.read(state, name | {"model_args": {"num_heads": 6}}).config.num_heads == 6
    assert timm.read(state, name)[0].num_heads == 3 and timm.read(state, name).notes == ()
    assert timm.read(state, num_heads=2).config.num_heads == 2
    assumed = timm.read(state)
    assert assumed.config.num_heads == 3 and any("3 are assumed" in note for note in assumed.notes)
    narrow = ViT(replace(CONFIG, embed_dim=24)).state_dict()
    with pytest.raises(ValueError, match="nothing says how many heads there are; give --num-heads"):
        timm.read(narrow)


@pytest.mark.parametrize("args, heads", [({"num_heads": 6}, 6), ({}, 3)])
def test_heads_in_the_source_cannot_be_overridden(args, heads):
    about = {"architecture": "vit_tiny_patch16_224", "model_args": args}
    with pytest.raises(ValueError, match=f"says num_heads {heads}, but 2 was given"):
        timm.read(EXAMPLE.state, about, num_heads=2)
    assert timm.read(EXAMPLE.state, about, num_heads=heads).config.num_heads == heads


@pytest.mark.parametrize("share", [0, 2, -0.5])
def test_an_invalid_crop_share_is_refused_by_its_field(share):
    tensors, about = timm.write(EXAMPLE)
    about["pretrained_cfg"]["crop_pct"] = share
    with pytest.raises(ValueError, match=f"crop_pct {share} .expected a number above 0 and at most 1"):
        timm.read(tensors, about)


def test_missing_parts_of_the_normalisation_are_noted():
    for values, what in (({}, "mean and std are"), ({"mean": 0.3}, "std is"), ({"std": 0.3}, "mean is")):
        assert any(f"normalised; {what} taken to be 0.5" in note for note in timm.read(EXAMPLE.state, **values).notes)
    assert not any("normalised" in note for note in timm.read(EXAMPLE.state, mean=0.3, std=(0.1, 0.2, 0.3)).notes)


def test_labels_are_read_in_the_order_of_their_numbers():
    tensors, about = timm.write(EXAMPLE)
    for names, expected in (({"1": "b", "0": "a", "2": "c"}, ("a", "b", "c")), (None, ("0", "1", "2"))):
        assert timm.read(tensors, about | {"label_names": names}).preprocessing.classes == expected


ABOUT = timm.write(EXAMPLE)[1]
PLACES = [("model_args", name) for name in ABOUT["model_args"]] + [
    ("pretrained_cfg", name) for name in ABOUT["pretrained_cfg"]] + [(None, name) for name in ABOUT]  # fmt: skip


@given(st.sampled_from(PLACES), JSON, st.none() | st.sampled_from(sorted(EXAMPLE.state)))
def test_any_value_in_a_config_json_is_read_or_refused_with_one_line(place, value, lost):
    tensors, about = timm.write(EXAMPLE)
    tensors.pop(lost, None)
    part, name = place
    (about if part is None else about[part])[name] = value
    try:
        assert isinstance(timm.read(tensors, about), Weights)
    except ValueError as error:
        assert "\n" not in str(error)
