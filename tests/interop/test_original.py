"""The original release's layout: it is read back unchanged, and anything else is refused."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from layouts import CONFIG, assert_equal_state, example, logits_of
from strategies import weights

from tinyvit.interop import original
from tinyvit.models import create_model

ITS_OWN = {"activation": "gelu_tanh", "norm_eps": 1e-6, "global_pool": "token"}
WITHOUT_RATES = {"drop_rate": 0.0, "attn_drop_rate": 0.0}
EXAMPLE = example(replace(CONFIG, **ITS_OWN))
TENSORS = original.write(EXAMPLE)


@given(weights(positions="learned", qkv_bias=True, **ITS_OWN, **WITHOUT_RATES))
def test_written_weights_are_read_back_bit_for_bit_and_their_shapes_give_the_configuration(written):
    rows, columns = written.config.grid
    read = original.read(original.write(written), img_size=None if rows == columns else written.config.img_size)
    assert read.config == written.config
    assert_equal_state(read.state, written.state)
    assert read.preprocessing.classes == tuple(str(i) for i in range(written.config.num_classes))


@given(weights("float64", positions=st.sampled_from(["learned_2d", "sincos_1d", "sincos_2d", "none"]), **ITS_OWN))
def test_positions_of_other_kinds_and_missing_biases_are_written_with_the_same_logits(written):
    read = original.read(original.write(written), img_size=written.config.img_size)
    assert read.config.positions == "learned" and read.config.qkv_bias
    expected = logits_of(written)
    np.testing.assert_allclose(logits_of(read), expected, rtol=0, atol=1e-12 * max(1, np.abs(expected).max()))


def test_the_names_and_shapes_are_those_of_the_released_vit_b_16():
    model = create_model("vit_base_patch16_224", device="meta", **{"activation": "gelu_tanh"})
    own = {name: parameter.shape for name, parameter in model.named_parameters()}
    parts = original.parts_of(model.config)
    shapes = {theirs: shape for ours in own for theirs, shape, _ in parts(ours, own[ours])}
    block = "Transformer/encoderblock_11"
    assert len(shapes) == 8 + 16 * 12 and shapes.items() >= {
        "cls": (1, 1, 768), "embedding/kernel": (16, 16, 3, 768),
        "Transformer/posembed_input/pos_embedding": (1, 197, 768), "Transformer/encoder_norm/scale": (768,),
        f"{block}/LayerNorm_0/scale": (768,), f"{block}/MultiHeadDotProductAttention_1/query/kernel": (768, 12, 64),
        f"{block}/MultiHeadDotProductAttention_1/value/bias": (12, 64),
        f"{block}/MultiHeadDotProductAttention_1/out/kernel": (12, 64, 768),
        f"{block}/MlpBlock_3/Dense_0/kernel": (768, 3072), f"{block}/MlpBlock_3/Dense_1/bias": (768,),
        "head/kernel": (768, 1000), "head/bias": (1000,),
    }.items()  # fmt: skip


def test_images_are_stretched_and_go_from_minus_1_to_1():
    prepared = original.read(TENSORS).preprocessing
    assert (prepared.mean, prepared.std, prepared.crop) == ((0.5,) * 3, (0.5,) * 3, None)


def test_all_missing_names_that_determine_the_shape_are_listed():
    with pytest.raises(ValueError, match="missing or misshapen: embedding/kernel .*, Transformer/enc.*pos_embedding"):
        original.read({"head/bias": np.zeros(3)})


def test_a_vit_without_class_token_is_refused():
    with pytest.raises(ValueError, match="without class token"):
        original.read({name: array for name, array in TENSORS.items() if name != "cls"})


def test_patches_that_do_not_form_a_square_need_the_size_of_the_images():
    tensors = TENSORS | {"Transformer/posembed_input/pos_embedding": np.zeros((1, 7, 192))}
    with pytest.raises(ValueError, match="6 patches don't form a square.*img_size"):
        original.read(tensors)
    assert original.read(tensors, img_size=(12, 8)).config.grid == (3, 2)


def test_patches_that_are_assumed_to_form_a_square_are_noted():
    said = "nothing says how the 4 patches lie; 2 rows of 2 are assumed"
    for size, assumed in ((None, True), ((4, 16), False)):
        weights = original.read(TENSORS, img_size=size)
        assert weights.config.grid == ((2, 2) if assumed else (1, 4))
        assert any(said in note for note in weights.notes) == assumed
