import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import redrawn, seeds

from tinyvit import ViTConfig, probe
from tinyvit.models import HybridConfig, QwenVisionConfig, ResNetConfig, build

RANDOM = np.random.default_rng(0)
SIDE = 33


def images(channels, count=3, side=SIDE):
    return RANDOM.standard_normal((count, channels, side, side))


def convnet(**fields):
    """A ResNet with random filters, most of whose ReLUs let pass what they read."""
    model = redrawn(build(ResNetConfig(img_size=SIDE, in_chans=2, num_classes=3, width=4, **fields), dtype="float64"))
    for parameter in model.parameters():
        if parameter.ndim == 1:
            parameter.data = np.ones(parameter.shape)
    return model


def theory(kernels):
    """The receptive field of convolutions (kernel, stride) one after the other: Σ (k − 1) · strides before, plus 1."""
    side, step = 1, 1
    for kernel, stride in kernels:
        side, step = side + (kernel - 1) * step, step * stride
    return side


@pytest.mark.parametrize("stem, kernels", [("conv3", [(3, 1)]), ("conv4", [(4, 2)]), ("conv7", [(7, 2), (3, 2)])])
def test_what_a_convolutional_network_sees_ends_where_its_kernels_do(stem, kernels):
    fields = probe.effective_receptive_field(convnet(stem=stem, depths=(1, 1)), images(2, 8))
    assert list(fields) == ["stem", "layer1.0", "layer2.0"]
    blocks = [[], [(3, 1)] * 2, [(3, 2), (3, 1)]]
    for field, more in zip(fields.values(), blocks, strict=True):
        kernels = [*kernels, *more]
        assert probe.receptive_box(field) == (min(theory(kernels), SIDE),) * 2
        assert 0 < probe.receptive_side(field) <= theory(kernels)


def test_a_linear_map_of_the_pixels_has_its_weights_as_its_field():
    """The patch in the middle sees its own pixels; with many directions, as much as the Jacobian says."""
    model = redrawn(build(ViTConfig(12, 4, in_chans=8, embed_dim=8, depth=1, num_heads=2), dtype="float64"))
    field = probe.effective_receptive_field(model, np.zeros((1000, 8, 12, 12)))["embed"]
    weight = model.embed.patch_embed.proj.weight.data                          # (8, 8, 4, 4)
    np.testing.assert_allclose(field[4:8, 4:8], (weight**2).sum((0, 1)) ** 0.5, rtol=0.05)
    assert probe.receptive_box(field) == (4, 4)


def test_attention_sees_the_whole_image_from_its_first_layer_on():
    model = redrawn(build(ViTConfig(12, 4, in_chans=2, embed_dim=8, depth=2, num_heads=2), dtype="float64"))
    fields = probe.effective_receptive_field(model, images(2, side=12))
    assert list(fields) == ["embed", "blocks.0", "blocks.1"]
    assert [probe.receptive_box(field) for field in fields.values()] == [(4, 4), (12, 12), (12, 12)]


@pytest.mark.parametrize("backbone, width", [("basic", 4), ("bit", 32)])
def test_a_hybrid_has_the_blocks_of_its_stem_and_its_layers(backbone, width):
    config = HybridConfig(16, 4, in_chans=1, embed_dim=8, depth=2, num_heads=2, backbone=backbone,
                          backbone_depths=(1, 1), backbone_width=width)  # fmt: skip
    model = redrawn(build(config, dtype="float64"))
    before = model.state_dict(), model.storage.gradients().copy()
    fields = probe.effective_receptive_field(model, images(1, side=16))
    assert len(fields) == 3 + 3 and list(fields)[-1] == "blocks.1" and all(f.shape == (16, 16) for f in fields.values())
    assert probe.receptive_box(fields["blocks.0"]) == (16, 16)
    for name, array in model.state_dict().items():
        np.testing.assert_array_equal(array, before[0][name])
    np.testing.assert_array_equal(model.storage.gradients(), before[1])


@given(std=st.floats(1, 16), seed=seeds())
def test_the_side_of_a_gaussian_is_about_four_and_a_half_standard_deviations(std, seed):
    """Above 4.55 % of its largest it is within √(−2 ln 0.0455) = 2.49 standard deviations: a disc of that radius r. The
    unit squares around the pixels in it cover the disc of radius r − 1/√2, and lie in that of radius r + 1/√2."""
    at = np.arange(-42, 43)
    field = np.exp(-(at[:, None] ** 2 + at**2) / (2 * std**2)) * np.random.default_rng(seed).uniform(0.1, 10)
    assert probe.receptive_side(field) == pytest.approx(np.pi**0.5 * 2.486 * std, abs=(np.pi / 2) ** 0.5)
    np.testing.assert_allclose(probe.receptive_side(np.stack([field, field])), probe.receptive_side(field))


def test_feature_maps_are_those_that_the_blocks_gave_and_the_liveliest_come_first():
    model, x = convnet(depths=(1, 1)), images(2, 2)
    maps = probe.feature_maps(model, probe.trace(model, x))
    for layer, found in enumerate(maps.values()):
        np.testing.assert_array_equal(found, model.features(x, layer))
    spread = found[0].var((1, 2))[probe.most_varied(found[0], 5)]
    assert len(spread) == 5 and (np.diff(spread) <= 0).all() and spread[0] == found[0].var((1, 2)).max()
    vit = build(ViTConfig(12, 4, embed_dim=8, depth=1, num_heads=2))
    with pytest.raises(ValueError, match="ViT has no feature maps: it makes tokens of patches"):
        probe.feature_maps(vit, None)


def test_the_pictures_have_a_panel_for_each_layer():
    model, x = convnet(depths=(1, 1)), images(2, 1)
    figure = probe.draw_receptive_fields(probe.effective_receptive_field(model, x))
    assert [ax.get_title().split("\n")[0] for ax in figure.axes][1:] == ["layer1.0", "layer2.0"]
    maps = {name: found[0] for name, found in probe.feature_maps(model, probe.trace(model, x)).items()}
    figure = probe.draw_feature_maps(maps, x[0])
    assert [ax.get_ylabel() for ax in figure.axes if ax.get_ylabel()] == list(maps)


def test_tokens_without_a_grid_have_no_receptive_field():
    with pytest.raises(ValueError, match="QwenVision has neither feature maps nor tokens in a grid"):
        probe.effective_receptive_field(build(QwenVisionConfig()), images(3, 1, 32))
