import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import redrawn, seeds

from tinyvit import Context, Key, create_model, gradcheck, nn, optim
from tinyvit.models import ResNetConfig, build
from tinyvit.models.resnet import STEMS
from tinyvit.models.summary import summarize
from tinyvit.training import train_step

TRAINING = Context(training=True, key=Key(0))
SMALL = dict(in_chans=2, num_classes=3, width=3)


@st.composite
def resnets(draw):
    """A small ResNet of any block and stem, for images of odd sizes."""
    config = ResNetConfig(
        img_size=(draw(st.integers(5, 9)), draw(st.integers(5, 9))),
        block=draw(st.sampled_from(["basic", "bottleneck"])),
        depths=tuple(draw(st.lists(st.integers(1, 2), min_size=1, max_size=2))),
        stem=draw(st.sampled_from(list(STEMS))),
        **SMALL,
    )
    return redrawn(build(config, dtype="float64"), draw(seeds()), std=0.5)


@given(model=resnets(), size=st.integers(1, 3), seed=seeds(), training=st.booleans())
def test_gradients_of_any_resnet_match_the_complex_step(model, size, seed, training):
    images = np.random.default_rng(seed).standard_normal((size, *model.image_shape))
    deepest = model.features(images, -1)
    training = training and deepest.size // deepest.shape[1] > 1
    report = gradcheck.check_model(model, images, ctx=TRAINING if training else None, redraw=False, directions=3)
    assert report.max_error < 1e-9, report


def test_parameters_and_statistics_have_the_names_of_timm_and_torchvision():
    model = create_model("resnet50", device="meta")
    names = {name for name, _ in (*model.named_parameters(), *model.named_buffers())}
    assert {"conv1.weight", "bn1.running_var", "layer1.0.conv3.weight", "layer1.0.downsample.0.weight",
            "layer2.0.downsample.1.running_mean", "layer4.2.bn3.bias", "fc.weight", "fc.bias"} <= names  # fmt: skip
    assert not [name for name in names if name.startswith("layer1.1.downsample")]


def test_resnet50_takes_four_billion_multiply_adds():
    assert sum(row.multiply_adds for row in summarize(create_model("resnet50", device="meta"))) == 4_089_184_256


def test_feature_maps_halve_their_side_and_double_their_width_from_stage_to_stage():
    model = create_model("resnet8_digits", width=4, depths=(2, 1, 1))
    images = np.random.default_rng(0).standard_normal((2, 1, 8, 8), "float32")
    shapes = [model.features(images, layer).shape for layer in range(5)]
    assert shapes == [(2, 4, 8, 8), (2, 4, 8, 8), (2, 4, 8, 8), (2, 8, 4, 4), (2, 16, 2, 2)]
    np.testing.assert_allclose(model.features(images), model.features(images, -1).mean((2, 3)), rtol=1e-6)


@pytest.mark.parametrize("stem", STEMS)
def test_a_stem_divides_the_side_by_its_stride(stem):
    config = ResNetConfig(img_size=32, stem=stem, depths=(1, 1), **SMALL)
    maps = build(config).features(np.zeros((1, 2, 32, 32), "float32"), -1)
    assert maps.shape[2:] == (32 // config.stride,) * 2


def test_a_block_passes_its_input_on_at_first():
    model = create_model("resnet8_digits", width=4, depths=(2,), dtype="float64")
    images = np.random.default_rng(0).standard_normal((2, 1, 8, 8))
    np.testing.assert_array_equal(model.features(images, -1), model.features(images, 0))


def test_images_of_any_size_are_read_with_the_same_weights():
    model = redrawn(build(ResNetConfig(img_size=8, **SMALL), dtype="float64"))
    images = np.random.default_rng(0).standard_normal((2, 2, 13, 9))
    larger = model.at_img_size((13, 9))
    assert larger.image_shape == (2, 13, 9)
    np.testing.assert_array_equal(larger(images)[0], model(images)[0])
    with pytest.raises(ValueError, match=r"expected images \(B, 2, 8, 8\), got \(2, 3, 8, 8\)"):
        model(np.zeros((2, 3, 8, 8)))


@pytest.mark.parametrize("options", [
    dict(threads=2), dict(threads=3), dict(accumulate=3), dict(threads=2, recompute=True),
], ids=str)  # fmt: skip
def test_any_number_of_threads_trains_the_same_model(options):
    def trained(threads=1, recompute=False, **options):
        model = create_model("resnet8_digits", width=4, dtype="float64")
        optimizer = optim.SGD(model, 0.1)
        for step in range(3):
            images = np.random.default_rng(step).standard_normal((7, 1, 8, 8))
            ctx = Context(training=True, key=Key(0), recompute=recompute)
            train_step(model, optimizer, images, np.arange(7), ctx, threads=threads, **options)
        return model.state_dict()

    expected = trained()
    for name, array in trained(**options).items():
        np.testing.assert_allclose(array, expected[name], rtol=1e-10, atol=1e-12, err_msg=name)


def test_a_batch_of_one_value_per_channel_is_refused_in_training():
    model = create_model("resnet8_digits", width=4, img_size=2)
    image, label = np.ones((1, 1, 2, 2), "float32"), np.zeros(1, int)
    with pytest.raises(ValueError, match=r"more than one value per channel in training, got x \(1, 8, 1, 1\)"):
        train_step(model, optim.SGD(model, 0.1), image, label, TRAINING)
    assert model.predict(image).shape == (1, 10)
    assert [row.path for row in summarize(model)][-1] == "fc"


@pytest.mark.parametrize("fields, message", [
    (dict(depths=()), "depths must name the blocks of at least one stage"),
    (dict(block="wide"), "block must be one of basic, bottleneck, got 'wide'"),
    (dict(width=0), "width"),
])  # fmt: skip
def test_shapes_that_cannot_be_built_are_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        ResNetConfig(**fields)


def test_channels_that_groups_do_not_divide_are_refused():
    with pytest.raises(ValueError, match="groups 4 don't divide the channels 6 and 8"):
        nn.Conv2d(6, 8, 3, groups=4)
