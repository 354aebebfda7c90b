import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import redrawn, seeds

from tinyvit import Context, Key, create_model, gradcheck, nn, optim
from tinyvit.models import BiTConfig, build
from tinyvit.models.summary import summarize
from tinyvit.training import train_step

TRAINING = Context(training=True, key=Key(0))
SMALL = dict(in_chans=2, num_classes=3, width=4, num_groups=2)


@st.composite
def bits(draw):
    """A small BiT of any kind, for images of odd sizes."""
    config = BiTConfig(
        img_size=(draw(st.integers(5, 9)), draw(st.integers(5, 9))),
        depths=tuple(draw(st.lists(st.integers(1, 2), min_size=1, max_size=2))),
        stem=draw(st.sampled_from(["conv3", "conv7"])),
        preactivation=draw(st.booleans()),
        padding=draw(st.sampled_from(["symmetric", "same"])),
        epsilon=draw(st.sampled_from(["variance", "deviation"])),
        std_eps=draw(st.sampled_from([1e-8, 1e-5])),
        **SMALL,
    )
    return redrawn(build(config, dtype="float64"), draw(seeds()), std=0.5)


@given(model=bits(), size=st.integers(1, 3), seed=seeds())
def test_gradients_of_any_bit_match_the_complex_step(model, size, seed):
    images = np.random.default_rng(seed).standard_normal((size, *model.image_shape))
    report = gradcheck.check_model(model, images, redraw=False, directions=3)
    assert report.max_error < 1e-9, report


@given(model=bits(), seed=seeds())
def test_no_sample_depends_on_another_in_training_either(model, seed):
    images = np.random.default_rng(seed).standard_normal((3, *model.image_shape))
    whole, _ = model(images, TRAINING)
    alone = [model(image[None], TRAINING)[0] for image in images]
    np.testing.assert_allclose(np.concatenate(alone), whole, rtol=1e-9, atol=1e-9)


@given(model=bits(), seed=seeds(), scale=st.floats(0.5, 2), shift=st.floats(-1, 1))
def test_a_filter_may_be_scaled_and_shifted_without_any_change(model, seed, scale, shift):
    images = np.random.default_rng(seed).standard_normal((2, *model.image_shape))
    before, _ = model(images)
    filters = model.trunk.stem.conv.weight
    filters.data = scale * filters.data + shift
    np.testing.assert_allclose(model(images)[0], before, rtol=1e-3, atol=1e-3)  # up to ε


def test_parameters_have_the_names_of_timm():
    names = {name for name, _ in create_model("resnetv2_50x1_bit", device="meta").named_parameters()}
    assert {"stem.conv.weight", "stages.0.blocks.0.norm1.weight", "stages.0.blocks.0.downsample.conv.weight",
            "stages.3.blocks.2.conv3.weight", "norm.bias", "head.fc.weight"} <= names  # fmt: skip
    assert not [name for name in names if "blocks.1.downsample" in name or "stem.norm" in name]


def test_the_zeros_around_the_stem_count_in_its_max_pooling():
    """As in timm's and Transformers' models: without a ReLU before it, zeros may be larger than the maps."""
    model = build(BiTConfig(img_size=8, stem="conv7", depths=(1,), **SMALL), dtype="float64")
    images = np.random.default_rng(1).standard_normal((5, 2, 8, 8))
    convolved, _ = model.trunk.stem.conv(images)                               # (5, 4, 4, 4)
    padded = np.pad(convolved, ((0, 0), (0, 0), (1, 1), (1, 1)))
    expected = [[padded[:, :, y : y + 3, x : x + 3].max((2, 3)) for x in (0, 2)] for y in (0, 2)]
    maps = model.features(images, 0)
    np.testing.assert_array_equal(maps, np.transpose(expected, (2, 3, 0, 1)))
    assert (maps[:, :, 0, 0] == 0).any() and (convolved[:, :, :2, :2].max((2, 3)) < 0).any()


def test_same_padding_makes_windows_as_in_tensorflow():
    conv = nn.StandardizedConv2d(1, 1, 3, stride=2, padding="same", eps=0.0).materialize(dtype="float64")
    conv.weight.data = np.arange(9.0).reshape(1, 1, 3, 3)
    x = np.random.default_rng(0).standard_normal((1, 1, 6, 5))
    y, _ = conv(x)
    assert y.shape == (1, 1, 3, 3)
    standardised = (np.arange(9.0) - 4) / np.arange(9.0).std()
    padded = np.pad(x[0, 0], ((0, 1), (1, 1)))  # one row below, one column on each side
    np.testing.assert_allclose(y[0, 0, 2, 2], (padded[4:7, 4:7].ravel() * standardised).sum(), rtol=1e-12)
    np.testing.assert_allclose(y[0, 0, 0, 0], (padded[:3, :3].ravel() * standardised).sum(), rtol=1e-12)


def test_threads_and_accumulation_split_the_batch():
    def trained(**options):
        model = redrawn(build(BiTConfig(img_size=8, depths=(1, 1), **SMALL), dtype="float64"))
        images = np.random.default_rng(0).standard_normal((6, 2, 8, 8))
        train_step(model, optim.SGD(model, 0.1), images, np.arange(6) % 3, TRAINING, **options)
        return model.state_dict()

    expected = trained(threads=1)
    for options in (dict(threads=2), dict(threads=1, accumulate=3)):
        for name, array in trained(**options).items():
            np.testing.assert_allclose(array, expected[name], rtol=1e-10, atol=1e-12, err_msg=name)


def test_a_summary_counts_every_parameter_once():
    model = create_model("resnetv2_50x1_bit", device="meta", img_size=64)
    assert sum(row.parameters for row in summarize(model)) == model.num_parameters()


@pytest.mark.parametrize("fields, message", [
    (dict(width=48), "width 48 is not divisible by num_groups 32"),
    (dict(depths=()), "depths must name the blocks of at least one stage"),
    (dict(padding="valid"), "padding must be one of symmetric, same, got 'valid'"),
    (dict(num_groups=0), "num_groups"),
])  # fmt: skip
def test_shapes_that_cannot_be_built_are_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        BiTConfig(**fields)
