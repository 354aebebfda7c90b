import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageEnhance, ImageOps
from strategies import seeds

from tinyvit.data import colour

ENHANCERS = {
    colour.brightness: ImageEnhance.Brightness,
    colour.contrast: ImageEnhance.Contrast,
    colour.saturation: ImageEnhance.Color,
    colour.sharpness: ImageEnhance.Sharpness,
}
BITS = np.arange(1, 9, dtype="int32")


@st.composite
def pictures(draw, min_pixels=1):
    """A batch of bytes (B, 1 or 3, H, W): noise with a range per image, some images constant."""
    B, C = draw(st.integers(1, 4)), draw(st.sampled_from([1, 3]))
    W = draw(st.integers(1, 40))
    H = max(draw(st.integers(1, 40)), -(-min_pixels // W))
    generator = np.random.default_rng(draw(seeds()))
    low = generator.integers(0, 256, (B, C, 1, 1))
    x = generator.integers(low, generator.integers(low, 256) + 1, (B, C, H, W))
    return x.astype("uint8")


def levels(x):
    x = x.astype("float32")
    x.flags.writeable = False
    return x


def as_pillow(image):
    return Image.fromarray(image[0] if len(image) == 1 else np.ascontiguousarray(image.transpose(1, 2, 0)))


def from_pillow(picture):
    array = np.asarray(picture)
    return array[None] if array.ndim == 2 else array.transpose(2, 0, 1)


def assert_within_one_level(got, expected):
    """Compare after truncation to bytes, as Pillow does."""
    assert abs(got.astype("uint8").astype(int) - expected).max() <= 1


@given(x=pictures(), seed=seeds(), operation=st.sampled_from([*ENHANCERS]))
def test_blends_are_pillows_within_one_level(x, seed, operation):
    factor = np.random.default_rng(seed).uniform(0, 2, len(x)).astype("float32")
    for image, f, got in zip(x, factor, operation(levels(x), factor)):
        assert_within_one_level(got, from_pillow(ENHANCERS[operation](as_pillow(image)).enhance(float(f))))


@given(x=pictures() | pictures(min_pixels=256), seed=seeds())
def test_the_others_are_pillows(x, seed):
    generator = np.random.default_rng(seed)
    bits, threshold = generator.choice(BITS, len(x)), generator.integers(0, 257, len(x)).astype("float32")
    found = {
        "autocontrast": colour.autocontrast(levels(x)), "equalize": colour.equalize(levels(x)),
        "posterize": colour.posterize(levels(x), bits), "solarize": colour.solarize(levels(x), threshold),
    }  # fmt: skip
    for i, image in enumerate(map(as_pillow, x)):
        amounts = {"posterize": [int(bits[i])], "solarize": [int(threshold[i])]}
        for name, images in found.items():
            expected = from_pillow(getattr(ImageOps, name)(image, *amounts.get(name, [])))
            if name == "autocontrast":
                assert_within_one_level(images[i], expected)
            else:
                np.testing.assert_array_equal(images[i], expected)


@given(x=pictures())
def test_a_grey_image_has_no_saturation_to_change(x):
    grey = levels(x[:, :1])
    np.testing.assert_array_equal(colour.saturation(grey, np.zeros(len(x), "float32")), grey)


@pytest.mark.parametrize(
    "operation",
    [lambda x: colour.posterize(x, BITS[:1]), lambda x: colour.solarize(x, np.array([128.0])), colour.equalize],
)
def test_a_level_just_below_a_whole_number_by_rounding_counts_as_that_number(operation):
    x = np.arange(256.0).reshape(1, 1, 16, 16)
    np.testing.assert_allclose(operation(x - 1e-6), operation(x), atol=1e-5)
