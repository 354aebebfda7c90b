import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import redrawn, seeds

from tinyvit import Context, Key, create_model, gradcheck, optim, probe
from tinyvit.models import HybridConfig, build
from tinyvit.models.resnet import STEMS
from tinyvit.training import train_step
from tinyvit.training.tasks import classification

TRAINING = Context(training=True, key=Key(0))
SMALL = dict(in_chans=2, num_classes=3, embed_dim=8, depth=2, num_heads=2)


@st.composite
def hybrids(draw):
    """A small hybrid with any stem, its tokens of one pixel of the feature maps or more."""
    backbone = draw(st.sampled_from(["basic", "bottleneck", "bit"]))
    stem = draw(st.sampled_from([stem for stem in STEMS if backbone != "bit" or stem != "conv4"]))
    depths = tuple(draw(st.lists(st.integers(1, 2), min_size=1, max_size=2)))
    patch = STEMS[stem].stride * 2 ** (len(depths) - 1) * draw(st.integers(1, 2))
    config = HybridConfig(
        img_size=(patch * draw(st.integers(1, 2)), patch * 2), patch_size=patch, backbone=backbone,
        backbone_depths=depths, backbone_width=32 if backbone == "bit" else 3, backbone_stem=stem, **SMALL,
    )  # fmt: skip
    return redrawn(build(config, dtype="float64"), draw(seeds()), std=0.3)


@given(model=hybrids(), size=st.integers(2, 3), seed=seeds(), training=st.booleans())
def test_gradients_of_any_hybrid_match_the_complex_step(model, size, seed, training):
    images = np.random.default_rng(seed).standard_normal((size, *model.image_shape))
    ctx = TRAINING if training else None
    report = gradcheck.check_model(model, images, ctx=ctx, redraw=False, directions=2)
    assert report.max_error < 1e-9, report


def test_tokens_are_the_pixels_of_the_stems_feature_maps():
    model = redrawn(create_model("hybrid_digits", backbone_width=4, embed_dim=8, num_heads=2, dtype="float64"))
    images = np.random.default_rng(0).standard_normal((2, 1, 8, 8))
    patches = model.embed.patch_embed
    maps, _ = patches.backbone(images)                                         # (2, 16, 2, 2)
    tokens, _ = patches(images)                                                # (2, 4, 8)
    weight, bias = patches.patch_embed.proj.weight.data, patches.patch_embed.proj.bias.data
    assert maps.shape == (2, 16, 2, 2) and weight.shape == (8, 16, 1, 1) and model.grid == (2, 2)
    pixels = maps.reshape(2, 16, 4).mT                                         # (2, 4, 16)
    np.testing.assert_allclose(tokens, pixels @ weight[:, :, 0, 0].T + bias, rtol=1e-12, atol=1e-12)


def test_parameters_have_the_names_of_timm():
    names = {name for name, _ in create_model("vit_base_r50_s16_224", device="meta").named_parameters()}
    assert {"cls_token", "pos_embed", "patch_embed.backbone.stem.conv.weight", "patch_embed.backbone.stem.norm.weight",
            "patch_embed.backbone.stages.2.blocks.8.conv3.weight", "patch_embed.proj.weight",
            "patch_embed.backbone.stages.0.blocks.0.downsample.norm.bias", "blocks.11.attn.qkv.weight",
            "norm.weight", "head.bias"} <= names  # fmt: skip


@pytest.mark.parametrize("fields, message", [
    (dict(patch_size=2), "a stride of 4 pixels, and patches of 2×2 pixels are no multiple of it; take patch_size 4"),
    (dict(patch_size=6, img_size=12), "patches of 6×6 pixels are no multiple"),
    (dict(backbone="bit", backbone_width=32, backbone_stem="conv4"), "stem must be one of conv3, conv7, got 'conv4'"),
    (dict(backbone_stem="conv7"), "a stem of 3 stages with conv7 has a stride of 16 pixels"),
    (dict(img_size=30), "image size 30×30 is not a multiple of the patch size 4×4"),
    (dict(backbone="bit", backbone_width=20), "width 20 is not divisible by num_groups 32"),
    (dict(backbone_depths=()), "depths must name the blocks of at least one stage"),
    (dict(embed_dim=10, num_heads=4), "embed_dim 10 is not divisible by num_heads 4"),
])  # fmt: skip
def test_a_stem_that_does_not_fit_is_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        HybridConfig(**fields)


def test_other_sizes_are_read_with_resized_positions():
    model = redrawn(create_model("hybrid_small_32", backbone_width=4, depth=1, embed_dim=8, num_heads=2))
    images = np.random.default_rng(0).standard_normal((2, 3, 24, 16), "float32")
    assert model(images)[0].shape == (2, 10) and model.at_img_size(48).grid == (12, 12)
    assert type(model.at_img_size(48)) is type(model)


@pytest.mark.parametrize("keep", [1.0, 0.5])
@pytest.mark.parametrize("options", [dict(threads=2), dict(accumulate=2), dict(threads=2, recompute=True)], ids=str)
def test_any_number_of_threads_trains_the_same_model(options, keep):
    def trained(threads=1, recompute=False, **options):
        model = create_model("hybrid_digits", backbone_width=4, embed_dim=8, num_heads=2, dtype="float64")
        optimizer = optim.SGD(model, 0.1)
        for step in range(2):
            images = np.random.default_rng(step).standard_normal((6, 1, 8, 8))
            ctx = Context(training=True, key=Key(0), recompute=recompute)
            train_step(model, optimizer, images, np.arange(6), ctx, objective=classification(keep=keep),
                       threads=threads, **options)  # fmt: skip
        return model.state_dict()

    expected = trained()
    for name, array in trained(**options).items():
        np.testing.assert_allclose(array, expected[name], rtol=1e-9, atol=1e-11, err_msg=name)


def test_its_attention_is_traced_over_the_grid_of_the_feature_maps():
    model = redrawn(create_model("hybrid_digits", backbone_width=4, embed_dim=8, num_heads=2))
    trace = probe.trace(model, np.random.default_rng(0).standard_normal((2, 1, 8, 8), "float32"), [0, 1])
    assert trace.grid == (2, 2) and trace.attention.shape[-2:] == (5, 5)
