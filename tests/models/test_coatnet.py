from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import redrawn, seeds

from tinyvit import Context, Key, create_model, gradcheck, optim
from tinyvit.models import CoAtNetConfig, build
from tinyvit.models.summary import summarize
from tinyvit.training import train_step

TRAINING = Context(training=True, key=Key(0))
SMALL = CoAtNetConfig(img_size=12, in_chans=2, num_classes=3, stem_width=3, stages="CT", depths=(1, 2), widths=(4, 8),
                      strides=(1, 2), head_dim=4)  # fmt: skip


@st.composite
def coatnets(draw):
    """A small CoAtNet of any stages, for images of odd sizes."""
    kinds = draw(st.text("CT", min_size=1, max_size=2))
    config = CoAtNetConfig(
        img_size=(draw(st.integers(5, 9)), draw(st.integers(5, 9))), in_chans=2, num_classes=3, stem_width=3,
        stem_stride=draw(st.sampled_from([1, 2])), stages=kinds, depths=(1, 2)[: len(kinds)], head_dim=4,
        widths=(4, 8)[: len(kinds)], strides=tuple(draw(st.sampled_from([1, 2])) for _ in kinds),
    )  # fmt: skip
    return redrawn(build(config, dtype="float64"), draw(seeds()), std=0.5)


@given(model=coatnets(), seed=seeds(), training=st.booleans())
def test_gradients_of_any_coatnet_match_the_complex_step(model, seed, training):
    images = np.random.default_rng(seed).standard_normal((2, *model.image_shape))
    report = gradcheck.check_model(model, images, ctx=TRAINING if training else None, redraw=False, directions=3)
    assert report.max_error < 1e-9, report


def test_coatnet_0_takes_4_billion_multiply_adds():
    model = create_model("coatnet_0_224", device="meta")
    assert 4.0e9 < sum(row.multiply_adds for row in summarize(model)) < 4.6e9


def test_stages_change_the_side_by_their_strides_and_the_width_as_configured():
    model = build(SMALL)
    images = np.random.default_rng(0).standard_normal((2, 2, 12, 12), "float32")
    shapes = [model.features(images, layer).shape[1:] for layer in range(model.depth + 1)]
    assert shapes == [(3, 6, 6), (4, 6, 6), (8, 3, 3), (8, 3, 3)]
    assert [name for name, _ in model.parts()][1:3] == ["stages.0.blocks.0", "stages.1.blocks.0"]
    assert model.features(images).shape == (2, 8)


def test_smaller_images_are_read_with_the_same_weights_and_larger_ones_are_refused():
    model = redrawn(build(SMALL, dtype="float64"))
    images = np.random.default_rng(0).standard_normal((2, 2, 9, 7))
    assert model(images)[0].shape == (2, 3)
    with pytest.raises(ValueError, match="relative positions are for images of at most 12×12 pixels, got 12×13"):
        model(np.zeros((2, 2, 12, 13)))


def test_a_model_for_smaller_images_gives_the_same_logits_and_one_for_larger_ones_reads_them():
    model = redrawn(build(SMALL, dtype="float64"))
    images = np.random.default_rng(0).standard_normal((2, 2, 9, 7))
    np.testing.assert_allclose(model.at_img_size((9, 7))(images)[0], model(images)[0], rtol=1e-12)
    assert model.at_img_size((24, 20))(np.zeros((1, 2, 24, 20)))[0].shape == (1, 3)


@pytest.mark.parametrize("options", [dict(threads=2), dict(threads=3), dict(threads=2, recompute=True)], ids=str)
def test_any_number_of_threads_trains_the_same_model(options):
    def trained(threads=1, recompute=False):
        model = build(SMALL, dtype="float64")
        optimizer = optim.SGD(model, 0.1)
        for step in range(3):
            images = np.random.default_rng(step).standard_normal((7, 2, 12, 12))
            ctx = Context(training=True, key=Key(0), recompute=recompute)
            train_step(model, optimizer, images, np.arange(7) % 3, ctx, threads=threads)
        return model.state_dict()

    expected = trained()
    for name, array in trained(**options).items():
        np.testing.assert_allclose(array, expected[name], rtol=1e-10, atol=1e-12, err_msg=name)


@pytest.mark.parametrize("fields, message", [
    (dict(stages="CX"), "stages must be a C or a T for each stage, got 'CX'"),
    (dict(stages=""), "stages must be text, got ''"),
    (dict(depths=(1,)), r"depths must have a number for each of 2 stages, got \(1,\)"),
    (dict(strides=(1, 3)), "strides"),
    (dict(head_dim=3), "a stage's width 8 is not divisible by head_dim 3"),
    (dict(squeeze=0.1), "expansion 4.0 or squeeze 0.1 leaves a width of 4 no hidden layer"),
])  # fmt: skip
def test_shapes_that_cannot_be_built_are_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        replace(SMALL, **fields)
