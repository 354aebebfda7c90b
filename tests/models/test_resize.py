from dataclasses import replace
from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinyvit import ViT, ViTConfig, gradcheck
from tinyvit import functional as F
from tinyvit.models.vit_config import POSITIONS

SIZES = st.tuples(st.sampled_from([4, 6, 8, 10]), st.sampled_from([6, 9, 12]))  # of patches 2 high and 3 wide
METHODS = st.sampled_from(["bilinear", "bicubic", "zoom"])
KINDS = st.sampled_from(POSITIONS)


def model_for(img_size, positions, **fields):
    config = ViTConfig(
        img_size=img_size, patch_size=(2, 3), in_chans=1, num_classes=3, embed_dim=16, depth=1, num_heads=2,
        positions=positions, **fields,
    )  # fmt: skip
    return ViT(config, dtype="float64")


@given(old=SIZES, new=SIZES, kind=KINDS, method=METHODS)
def test_at_img_size_keeps_the_whole_state_except_the_positions(old, new, kind, method):
    model = model_for(old, kind)
    before = model.state_dict()
    resized = model.at_img_size(new, method)
    assert resized.config == replace(model.config, img_size=new)
    state = resized.state_dict()
    for name, array in before.items():
        np.testing.assert_array_equal(model.state_dict()[name], array)
        if "pos_embed" not in name or old == new:
            np.testing.assert_array_equal(state[name], array)


@given(old=SIZES, new=SIZES, kind=KINDS, method=METHODS)
def test_the_logits_equal_those_with_positions_resized_in_the_forward(old, new, kind, method):
    model = model_for(old, kind, dynamic_img_size=True, resize_positions=method)
    random = np.random.default_rng(0)
    model.head.weight.data = random.standard_normal(model.head.weight.shape)
    images = random.standard_normal((2, 1, *new))
    resized = model.at_img_size(new, method)
    np.testing.assert_allclose(resized.embed(images)[0], model.embed(images)[0], atol=1e-12)
    np.testing.assert_allclose(resized(images)[0], model(images)[0], atol=1e-11)
    for logits in (model.forward_above(images, 2)[0], model.forward_parts(images, model.parts())[0]):
        np.testing.assert_allclose(logits, resized(images)[0], atol=1e-11)
    np.testing.assert_allclose(model.features(images), resized.features(images), atol=1e-11)
    if kind == "rope" and prod(resized.grid) != prod(model.grid):
        with pytest.raises(ValueError, match="rotary positions of another grid"):
            model.encode(model.embed(images)[0])


@given(old=SIZES, new=SIZES, method=METHODS)
def test_positions_of_rows_and_columns_are_resized_as_the_grid_that_they_make(old, new, method):
    model = model_for(old, "learned_2d")
    state = model.state_dict()
    resized = model.at_img_size(new, method)
    new_state = resized.state_dict()
    whole, _ = F.grid_positions(state["pos_embed_x"], state["pos_embed_y"])
    expected, _ = F.resize_positions(whole, model.grid, resized.grid, method)
    got, _ = F.grid_positions(new_state["pos_embed_x"], new_state["pos_embed_y"])
    np.testing.assert_allclose(got, expected, atol=1e-13)


@pytest.mark.parametrize("kind", ["sincos_1d", "sincos_2d"])
def test_sines_and_cosines_keep_the_place_in_the_image_that_they_stood_for(kind):
    model = model_for((4, 6), kind)
    state = model.at_img_size((8, 12), "zoom").state_dict()
    before, after = model.state_dict()["pos_embed"][0, 1:], state["pos_embed"][0, 1:]
    np.testing.assert_allclose(after[[0, 3, 12, 15]], before, atol=1e-12)  # the corners


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", ["learned", "learned_2d", "sincos_1d", "sincos_2d"])
def test_the_dtype_stays(kind, dtype):
    model = model_for((4, 6), kind).to(dtype)
    state = model.at_img_size((6, 12)).state_dict()
    assert {array.dtype for array in state.values()} == {np.dtype(dtype)}


def test_a_size_that_the_patches_do_not_divide_is_refused():
    model = model_for((4, 6), "learned")
    with pytest.raises(ValueError, match="not a multiple of the patch size 2×3"):
        model.at_img_size((5, 6))


def test_an_unknown_method_is_refused():
    model = model_for((4, 6), "learned")
    with pytest.raises(ValueError, match="got 'nearest'"):
        model.at_img_size((8, 6), "nearest")


@pytest.mark.parametrize("kind", ["learned", "learned_2d", "sincos_1d", "sincos_2d", "none"])
@pytest.mark.parametrize("method", ["bilinear", "bicubic", "zoom"])
def test_the_gradients_through_positions_resized_in_the_forward_match_the_complex_step(kind, method):
    model = model_for((6, 12), kind, dynamic_img_size=True, resize_positions=method)
    images = np.random.default_rng(0).standard_normal((2, 1, 8, 9))
    report = gradcheck.check_model(model, images)
    assert report.max_error < 1e-9, report


def test_a_method_that_does_not_exist_is_refused():
    with pytest.raises(ValueError, match="resize_positions must be one of bilinear, bicubic, zoom, got 'nearest'"):
        model_for((4, 6), "learned", resize_positions="nearest")
