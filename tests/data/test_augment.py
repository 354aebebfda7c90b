from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from strategies import seeds

from tinyvit import Key
from tinyvit.data import Augmentation, Dataset
from tinyvit.data.augment import augment

K = 4
EVERYTHING = Augmentation(crop=2, flip=True, policy="rand", operations=3, erase=0.5, mixup=0.8, cutmix=1.0)
shares = st.floats(0, 1)
augmentations = st.builds(
    Augmentation,
    crop=st.integers(0, 4),
    flip=st.booleans(),
    rotate=st.sampled_from([0.0, 20.0]),
    policy=st.sampled_from(["none", "trivial", "rand"]),
    operations=st.integers(1, 3),
    magnitude=st.floats(0, 30),
    erase=shares,
)
mixings = st.sampled_from([{}, {"mixup": 0.8}, {"cutmix": 1.0}, {"mixup": 0.2, "cutmix": 0.5}])


@st.composite
def datasets(draw, dtype=None):
    """Up to twelve read-only images, 1 or 3 channels, seldom square, of any kind of pixel and any scale."""
    shape = draw(st.tuples(st.integers(1, 12), st.sampled_from([1, 3]), st.integers(1, 20), st.integers(1, 20)))
    dtype = dtype or draw(st.sampled_from(["uint8", "uint16", "float32", "float64"]))
    scale = draw(st.sampled_from([16, 255]))
    generator = np.random.default_rng(draw(seeds()))
    images = generator.integers(0, scale + 1, shape).astype(dtype)
    images.flags.writeable = False
    labels = generator.integers(0, K, len(images))
    C = shape[1]
    return Dataset(images, labels, tuple("abcd"), (0.4, 0.5, 0.6)[:C], (0.1, 0.2, 0.3)[:C], float(scale))


def dark():
    """Sixty-four images with levels from 0 to 7."""
    images = np.arange(8 * 64, dtype="uint8").reshape(64, 1, 2, 4) % 8
    return Dataset(images, np.zeros(64, int), tuple("abcd"), (0.4,), (0.1,), 255.0)


def rand(magnitude):
    return Augmentation(policy="rand", operations=3, magnitude=magnitude)


def augmented(dataset, augmentation, key, dtype="float64", rows=slice(None)):
    return augment(dataset.images[rows], dataset.labels[rows], augmentation, dataset, key, dtype)


@given(dataset=datasets(), seed=seeds())
def test_by_default_images_are_only_normalised(dataset, seed):
    images, labels = augmented(dataset, Augmentation(), Key(seed))
    np.testing.assert_array_equal(images, dataset.normalise(dataset.images, "float64"))
    np.testing.assert_array_equal(labels, dataset.labels)


@given(dataset=datasets(), augmentation=augmentations, mixing=mixings, seed=seeds())
def test_the_same_key_gives_the_same_bits_and_the_data_set_stays(dataset, augmentation, mixing, seed):
    before = dataset.images.copy(), dataset.labels.copy()
    augmentation = replace(augmentation, **mixing)
    for a, b in zip(*(augmented(dataset, augmentation, Key(seed, step=2)) for _ in range(2))):
        np.testing.assert_array_equal(a, b)
    for a, b in zip(before, (dataset.images, dataset.labels)):
        np.testing.assert_array_equal(a, b)


@given(dataset=datasets(), augmentation=augmentations, mixing=mixings, seed=seeds())
def test_a_batch_is_the_same_in_float32_and_float64_and_has_soft_targets_where_it_may_be_mixed(
    dataset, augmentation, mixing, seed
):
    augmentation = replace(augmentation, **mixing)
    single, double = (augmented(dataset, augmentation, Key(seed), dtype) for dtype in ("float32", "float64"))
    for (images, targets), dtype in ((single, "float32"), (double, "float64")):
        assert (images.shape, images.dtype) == (dataset.images.shape, dtype)
        assert (targets.shape, targets.dtype.kind) == (((len(images), K), "f") if mixing else ((len(images),), "i"))
        assert not mixing or targets.dtype == dtype
    for a, b in zip(single, double):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


@given(dataset=datasets(), augmentation=augmentations, mixing=mixings, seed=seeds(), first=st.integers(0, 11),
       count=st.integers(1, 12))  # fmt: skip
def test_a_part_of_a_batch_has_the_bits_that_it_has_in_the_whole_batch(
    dataset, augmentation, mixing, seed, first, count
):
    first = min(first, len(dataset) - 1)
    part, key = slice(first, min(first + count, len(dataset))), Key(seed, 3).skip(20)
    inputs = dataset.images, dataset.labels, replace(augmentation, **mixing), dataset, key
    for got, whole in zip(augment(*inputs, part=part), augment(*inputs), strict=True):
        np.testing.assert_array_equal(got, whole[part])


@given(dataset=datasets(dtype="uint8"), augmentation=augmentations, seed=seeds())
@example(dataset=dark(), augmentation=rand(np.nextafter(30, 0)), seed=0)     # solarize's threshold is just above 0
@example(dataset=dark(), augmentation=rand(np.nextafter(3.75, 0)), seed=0)   # posterize's bits are just above 7½
def test_pixels_of_any_type_are_augmented_alike(dataset, augmentation, seed):
    as_floats = replace(dataset, images=dataset.images / dataset.scale, scale=1.0)
    got, expected = (augmented(d, augmentation, Key(seed))[0] for d in (as_floats, dataset))
    np.testing.assert_allclose(got, expected, rtol=1e-3, atol=1e-3)


@given(dataset=datasets(), mixing=mixings, seed=seeds(), prob=shares)
def test_mixed_targets_are_the_shares_of_the_images(dataset, mixing, seed, prob):
    """If every image is constant with the value of its class, its mean after mixing follows from the targets."""
    plain = np.broadcast_to(dataset.labels[:, None, None, None], dataset.images.shape).astype("float64")
    C = plain.shape[1]
    plain = replace(dataset, images=plain, mean=(0.0,) * C, std=(1.0,) * C, scale=1.0)
    images, targets = augmented(plain, Augmentation(**mixing, mix_prob=prob), Key(seed))
    if mixing:
        np.testing.assert_allclose(targets.sum(1), 1)
        targets = targets @ np.arange(K)
    np.testing.assert_allclose(images.mean((1, 2, 3)), targets, atol=1e-12)


def checkerboard(n=6):
    """Alternating images of 0 and of 1."""
    images = np.zeros((n, 1, 8, 8), "uint8")
    images[::2] = 1
    return Dataset(images, np.arange(n) % 2, ("a", "b"), (0.0,), (1.0,), 1.0)


def kinds(augmentation, batches=400):
    """How many batches were left unmixed, mixed by mixup, and mixed by cutmix."""
    counts, shares = {"none": 0, "mixup": 0, "cutmix": 0}, []
    dataset = checkerboard()
    for i in range(batches):
        images, targets = augmented(dataset, augmentation, Key(0).skip(6 * i))
        if set(np.unique(targets)) == {0, 1} and (images == dataset.images).all():
            counts["none"] += 1
        else:
            counts["cutmix" if set(np.unique(images)) <= {0, 1} else "mixup"] += 1
            shares.append(targets[1].max())
    return counts, np.array(shares)


def test_mixing_chooses_by_its_probability_and_between_both_kinds_by_a_coin():
    counts, _ = kinds(Augmentation(mixup=1.0, cutmix=1.0, mix_prob=0.5))
    assert abs(counts["none"] - 200) < 50 and abs(counts["mixup"] - 100) < 45 and abs(counts["cutmix"] - 100) < 45
    assert kinds(Augmentation(mixup=1.0, mix_prob=0.0))[0]["none"] == 400
    assert kinds(Augmentation(mixup=1.0))[0]["mixup"] == 400


def test_the_share_of_an_image_is_drawn_from_a_beta_distribution():
    """The larger share max(λ, 1 − λ) is on average 3/4 for Beta(1, 1), and above that for α below 1."""
    even, uneven = (kinds(Augmentation(mixup=alpha))[1].mean() for alpha in (1.0, 0.2))
    assert abs(even - 0.75) < 0.03 and uneven > 0.87


@pytest.mark.parametrize(("fields", "message"), [
    ({"crop": -1}, "augment.crop must be an int of at least 0, got -1"),
    ({"policy": "auto"}, "augment.policy must be one of none, trivial, rand, got 'auto'"),
    ({"operations": 10**6}, "augment.operations must be an int from 1 to 100, got 1000000"),
    ({"magnitude": 31}, "augment.magnitude must be a number from 0 to 30, got 31"),
    ({"mix_prob": 2}, "augment.mix-prob must be a number from 0 to 1, got 2"),
])  # fmt: skip
def test_an_invalid_augmentation_is_refused_with_the_given_value(fields, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        Augmentation(**fields)


@given(seed=seeds(), crop=st.integers(0, 3), flip=st.booleans(), rotate=st.sampled_from([0, 30, 180]))
def test_labels_of_pixels_move_with_their_image_and_what_comes_in_is_ignored(seed, crop, flip, rotate):
    labels = np.random.default_rng(seed).integers(1, K, (4, 7, 5))
    dataset = Dataset(labels[:, None].astype("uint8"), labels, tuple("abcd"), (0.0,), (1.0,), 1.0)
    images, moved = augmented(dataset, Augmentation(crop=crop, flip=flip, rotate=rotate), Key(seed))
    np.testing.assert_array_equal(images[:, 0], np.where(moved == 255, 0, moved))
    assert crop or rotate or (moved != 255).all()


def test_no_image_is_turned_by_more_than_was_asked_for():
    images = np.zeros((200, 1, 41, 41), "uint8")
    images[:, :, 20, 40] = 1  # right of the middle
    dataset = Dataset(images, np.zeros(200, int), tuple("abcd"), (0.0,), (1.0,), 1.0)
    turned, _ = augmented(dataset, Augmentation(rotate=25.0), Key(0))
    y, x = np.array([np.argwhere(image[0])[0] if image.any() else (20, 40) for image in turned]).T - 20
    angles = np.degrees(np.arctan2(-y, x))
    assert 20 < angles.max() <= 27 and -27 <= angles.min() < -20
