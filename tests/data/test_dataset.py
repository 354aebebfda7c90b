import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import seeds

from tinyvit import data

PIXELS = ["uint8", "uint16", "int64", "float32", "float64"]


def two_images(**changes):
    """A data set of two images (2, 3, 4, 5), with some of it replaced."""
    fields = {
        "images": np.zeros((2, 3, 4, 5), "uint8"),
        "labels": np.array([0, 1]),
        "classes": ("cat", "dog"),
        "mean": (0.4, 0.5, 0.6),
        "std": (0.1, 0.2, 0.3),
    }
    return data.Dataset(**fields | changes)


def test_its_length_is_the_number_of_images():
    assert len(two_images()) == 2


@given(seed=seeds(), dtype=st.sampled_from(PIXELS), scale=st.floats(0.5, 1000))
def test_normalised_pixels_are_what_the_formula_says(seed, dtype, scale):
    images = np.random.default_rng(seed).integers(0, 256, (2, 3, 4, 5))
    dataset = two_images(images=images, scale=scale)
    pixels = dataset.normalise(images.astype(dtype), "float64")
    for channel, (mean, std) in enumerate(zip(dataset.mean, dataset.std)):
        expected = (images[:, channel] / scale - mean) / std
        np.testing.assert_allclose(pixels[:, channel], expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", PIXELS)
def test_normalised_pixels_have_the_dtype_that_was_asked_for(dtype):
    pixels = two_images().normalise(np.ones((2, 3, 4, 5), dtype), "float32")
    assert pixels.dtype == "float32"


def with_pixel(value):
    images = np.zeros((2, 3, 4, 5))
    images[1, 2, 3, 4] = value
    return {"images": images}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"images": np.zeros((0, 3, 4, 5)), "labels": np.zeros(0, int)}, r"n at least 1, got \(0, 3, 4, 5\)"),
        ({"images": np.zeros((2, 4, 5))}, r"\(n, C, H, W\).*got \(2, 4, 5\)"),
        ({"labels": np.array([0])}, r"labels \(2,\), got int64 \(1,\)"),
        ({"labels": np.array([[0], [1]])}, r"labels \(2,\), got int64 \(2, 1\)"),
        ({"labels": np.array([0.0, 1.0])}, r"integer labels.*got float64"),
        ({"labels": np.array([0, 2])}, "from 0 to 1, got 2 at image 1"),
        ({"labels": np.array([-1, 0])}, "from 0 to 1, got -1 at image 0"),
        (with_pixel(np.nan), "image 1 .*NaN or infinite"),
        (with_pixel(-np.inf), "image 1 .*NaN or infinite"),
        ({"mean": (0.5,)}, "mean and a std for each of 3 channels"),
        ({"std": (0.5,)}, "mean and a std for each of 3 channels"),
    ],
)
def test_what_does_not_fit_is_refused_with_what_came(changes, message):
    with pytest.raises(ValueError, match=message):
        two_images(**changes)


def test_data_sets_are_loaded_by_name():
    np.testing.assert_array_equal(data.load("digits").test.images, data.digits().test.images)


def test_an_unknown_data_set_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match=r"unknown data set 'mnist'.*digits, cifar10"):
        data.load("mnist")
