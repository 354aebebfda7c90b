import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import seeds, splits

from tinyvit import data

PIXELS = ["uint8", "uint16", "int64", "float32", "float64"]


def two_images(**changes):
    """A data set of two images (2, 3, 4, 5), with some fields replaced."""
    fields = {
        "images": np.zeros((2, 3, 4, 5), "uint8"),
        "labels": np.array([0, 1]),
        "classes": ("cat", "dog"),
        "mean": (0.4, 0.5, 0.6),
        "std": (0.1, 0.2, 0.3),
    }
    return data.Dataset(**fields | changes)


@given(seed=seeds(), dtype=st.sampled_from(PIXELS), scale=st.floats(0.5, 1000))
def test_normalised_pixels_follow_the_formula(seed, dtype, scale):
    images = np.random.default_rng(seed).integers(0, 256, (2, 3, 4, 5))
    dataset = two_images(images=images, scale=scale)
    pixels = dataset.normalise(images.astype(dtype), "float64")
    for channel, (mean, std) in enumerate(zip(dataset.mean, dataset.std)):
        expected = (images[:, channel] / scale - mean) / std
        np.testing.assert_allclose(pixels[:, channel], expected, rtol=1e-12, atol=1e-12)


def with_pixel(value):
    images = np.zeros((2, 3, 4, 5))
    images[1, 2, 3, 4] = value
    return {"images": images}


@pytest.mark.parametrize(("changes", "message"), [
    ({"images": np.zeros((0, 3, 4, 5)), "labels": np.zeros(0, int)}, r"n at least 1, got \(0, 3, 4, 5\)"),
    ({"images": np.zeros((2, 4, 5))}, r"\(n, C, H, W\).*got \(2, 4, 5\)"),
    ({"labels": np.array([0])}, r"labels \(2,\) or .*, got 'int64 \(1,\)'"),
    ({"labels": np.array([0.0, 1.0])}, r"integer labels.*got 'float64"),
    ({"labels": np.array([0, 2])}, "from 0 to 1, got '0 to 2'"),
    ({"labels": np.array([-1, 0])}, "from 0 to 1, got '-1 to 0'"),
    (with_pixel(np.nan), "pixels that are NaN or infinite"),
    ({"mean": (0.5,)}, "mean and a std for each of 3 channels"),
])  # fmt: skip
def test_inconsistent_arrays_are_refused_with_the_given_value(changes, message):
    with pytest.raises(ValueError, match=message):
        two_images(**changes)


# -- a part held out --------------------------------------------------------------------------------------------------


@given(split=splits(), share=st.floats(0.2, 0.8), seed=seeds())
def test_a_share_of_each_class_is_held_out_of_the_training_images_by_the_seed_alone(split, share, seed):
    rest, held = data.hold_out(split, share, seed)
    images = np.concatenate([rest.images, held.images]).ravel()
    assert sorted(images) == list(range(len(split.train)))
    np.testing.assert_array_equal(np.concatenate([rest.labels, held.labels]), split.train.labels[images])
    for part in (rest, held):
        assert (part.classes, part.mean, part.std) == (split.train.classes, split.train.mean, split.train.std)
    for label, size in enumerate(np.bincount(split.train.labels)):
        assert np.count_nonzero(held.labels == label) == round(share * size)
    for part, again in zip((rest, held), data.hold_out(data.Split(split.train, two_images()), share, seed)):
        np.testing.assert_array_equal(part.images, again.images)


def test_other_seeds_hold_out_other_images():
    held = {data.hold_out(data.digits(), 0.1, seed).test.images.tobytes() for seed in range(5)}
    assert len(held) == 5


@pytest.mark.parametrize(("share", "message"), [
    (0, "share between 0 and 1, got 0"),
    (1.0, "share between 0 and 1, got 1.0"),
    (0.3, "share of the 1 images of class cat that leaves some .*, got 0.3"),
    (0.7, "share of the 1 images of class cat that leaves some .*, got 0.7"),
])  # fmt: skip
def test_a_share_that_leaves_a_class_without_images_is_refused(share, message):
    with pytest.raises(ValueError, match=message):
        data.hold_out(data.Split(two_images(), two_images()), share)


def test_an_unknown_data_set_and_a_folder_for_one_that_is_built_in_are_refused():
    with pytest.raises(ValueError, match="moving-digits are built in; leave out --data-dir, got x"):
        data.load("moving-digits", "x")
    with pytest.raises(ValueError, match=r"unknown data set 'mnist'.*digits, cifar10, cifar100"):
        data.load("mnist")
