import json
from dataclasses import asdict

import numpy as np
import pytest
from strategies import redrawn

from tinyvit import Context, gradcheck
from tinyvit.models import DeiTConfig, SegmenterConfig, build
from tinyvit.models.segmenter import HEADS
from tinyvit.models.summary import summarize

VIT = dict(patch_size=4, embed_dim=8, depth=2, num_heads=2)
BACKBONES = {  # each on maps of 2×4 places for images of 8×16
    "vit": VIT | {"positions": "rope"},
    "deit": VIT | {"num_registers": 1},
    "dinov2": VIT,
    "hybrid": VIT | {"backbone_width": 3},
    "swin": dict(patch_size=2, embed_dim=4, depths=(1, 1), num_heads=(1, 2), window_size=2),
    "coatnet": dict(stem_width=4, stages="CT", depths=(1, 1), widths=(4, 8), strides=(1, 2), head_dim=4),
    "resnet": dict(depths=(1, 1), width=4, stem="conv4"),
}


def segmenter(architecture="vit", head="pixel", **fields):
    shape = dict(img_size=(8, 16), in_chans=2, num_classes=3, decoder_dim=8, decoder_depth=1, decoder_heads=2)
    fields = {"backbone": BACKBONES[architecture], "head": head} | shape | fields
    return build(SegmenterConfig(architecture, **fields), dtype="float64")


def images(*size):
    return np.random.default_rng(0).standard_normal((2, 2, *size))


@pytest.mark.parametrize("architecture", BACKBONES)
@pytest.mark.parametrize("head", HEADS)
def test_gradients_of_each_head_on_each_backbone_match_the_complex_step(architecture, head):
    model = segmenter(architecture, head)
    report = gradcheck.check_model(model, images(8, 16), directions=2)
    assert report.max_error < 1e-9 and model(images(8, 16))[0].shape == (2, 3, 8, 16), report


@pytest.mark.parametrize("head", HEADS)
def test_images_of_another_size_get_a_label_for_each_of_their_pixels(head):
    model = redrawn(segmenter(head=head, img_size=8, backbone=VIT | {"positions": "rope", "dynamic_img_size": True}))
    logits, cache = model(images(8, 12), Context())
    assert logits.shape == (2, 3, 8, 12) and model.backward(logits, cache).shape == (2, 2, 8, 12)
    with pytest.raises(ValueError, match="image size 8×10 is not a multiple of the patch size 4×4"):
        model(images(8, 10))
    larger = model.at_img_size(16)
    assert larger.config.backbone.img_size == 16
    np.testing.assert_array_equal(larger(images(8, 12))[0], logits)


def test_multiply_adds_count_transposed_convolutions_and_masks():
    counts = {row.path: row.multiply_adds for row in summarize(segmenter("vit", "mask"), batch_size=2)}
    assert counts["head.products"] == 2 * 8 * 3 * 8
    counts = {row.path: row.multiply_adds for row in summarize(segmenter("vit", "pixel"))}
    assert counts["head.head"] == 8 * 8 * 3 * 16


def test_a_backbones_weights_are_taken_over_and_others_refused():
    model, source = segmenter("swin", "linear"), redrawn(segmenter("swin").backbone)
    state = model.state_from(source)
    np.testing.assert_array_equal(state["backbone.norm.weight"], source.state_dict()["norm.weight"])
    np.testing.assert_array_equal(state["head.head.bias"], 0)
    other = build(type(source.config)(**BACKBONES["swin"] | {"num_heads": (2, 2)}))
    with pytest.raises(ValueError, match=r"don't fit the backbone: they are for in_chans 3, and not 2; num_heads"):
        model.state_from(other)
    with pytest.raises(ValueError, match="the weights are those of a DeiT, not of a Segmenter"):
        model.state_from(segmenter("deit").backbone)


def test_a_configuration_goes_through_json_with_its_backbone():
    config = segmenter("coatnet", "pyramid").config
    assert SegmenterConfig(**json.loads(json.dumps(asdict(config)))) == config
    assert config.backbone.img_size == (8, 16) and config.backbone.num_classes == 0


@pytest.mark.parametrize("fields, message", [
    (dict(architecture="clip"), "the architecture 'clip' gives no feature maps of images for a head; take another one"),
    (dict(architecture="vivit"), "the architecture 'vivit' gives no feature maps"),
    (dict(architecture="segmenter"), "the architecture 'segmenter' gives no feature maps"),
    (dict(backbone=DeiTConfig()), "backbone must be a ViTConfig for the architecture 'vit', got a DeiTConfig"),
    (dict(img_size=30), "image size 30×30 is not a multiple of the patch size 4×4"),
    (dict(architecture="swin", img_size=30), "image size 30×30 is not a multiple of the patch size 8×8"),
    (dict(head="mask", decoder_dim=6), "decoder_dim 6 is not divisible by decoder_heads 4"),
    (dict(head="pyramid", img_size=4), r"expected at least 2×2 places, got \(1, 1\)"),
    (dict(head="pyramid", backbone={"embed_dim": 6, "num_heads": 1}), "expected a multiple of 4, got 6"),
])  # fmt: skip
def test_what_does_not_fit_is_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        SegmenterConfig(**fields)
