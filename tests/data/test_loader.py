import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import seeds

from tinyvit.data import Dataset, Loader

lengths = st.integers(1, 40)
batch_sizes = st.integers(1, 50)
epochs = st.integers(0, 5)


def numbered(n, shape=(1, 1, 1)):
    """n images whose pixels are the image's number, which normalisation leaves as they are."""
    images = np.broadcast_to(np.arange(n, dtype="uint8").reshape(-1, 1, 1, 1), (n, *shape))
    return Dataset(images, np.arange(n), tuple(map(str, range(n))), mean=(0.0,), std=(1.0,), scale=1.0)


def noise(n=20):
    """n images of random pixels, so that every crop of every image differs."""
    images = np.random.default_rng(0).integers(0, 256, (n, 3, 6, 5)).astype("uint8")
    images.flags.writeable = False
    return Dataset(images, np.arange(n), tuple(map(str, range(n))), (0.4, 0.5, 0.6), (0.1, 0.2, 0.3))


def order(loader, epoch=0):
    """The numbers of the images in the order of an epoch."""
    return [int(target) for batch in loader.epoch(epoch) for target in batch.targets]


def epoch_images(epoch=0, **options):
    """All images of an epoch of `noise`, whatever batches they came in."""
    return np.concatenate([batch.images for batch in Loader(noise(), **options).epoch(epoch)])


@given(n=lengths, batch_size=batch_sizes, seed=seeds(), epoch=epochs)
def test_a_shuffled_epoch_shows_every_image_once_but_those_that_fill_no_batch(n, batch_size, seed, epoch):
    seen = order(Loader(numbered(n), batch_size, shuffle=True, seed=seed), epoch)
    assert len(seen) == len(set(seen)) == n - n % min(batch_size, n)


@given(n=lengths, batch_size=batch_sizes)
def test_without_shuffling_the_order_is_kept_and_the_last_partial_batch_is_shown(n, batch_size):
    loader = Loader(numbered(n), batch_size)
    assert order(loader) == list(range(n))
    assert [len(batch.targets) for batch in loader.epoch()][:-1] == [batch_size] * (len(loader) - 1)


@given(n=lengths, batch_size=batch_sizes, shuffle=st.booleans(), seed=seeds())
def test_its_length_is_the_number_of_batches(n, batch_size, shuffle, seed):
    loader = Loader(numbered(n), batch_size, shuffle=shuffle, seed=seed)
    assert len(list(loader.epoch())) == len(loader) > 0


@given(n=lengths, batch_size=batch_sizes, seed=seeds())
def test_images_and_targets_stay_together(n, batch_size, seed):
    for images, targets in Loader(numbered(n), batch_size, shuffle=True, seed=seed).epoch():
        np.testing.assert_array_equal(images[:, 0, 0, 0], targets)


@given(seed=seeds(), epoch=epochs)
def test_the_same_epoch_of_the_same_seed_has_the_same_batches(seed, epoch):
    options = dict(batch_size=4, shuffle=True, crop=2, flip=True, seed=seed)
    np.testing.assert_array_equal(epoch_images(epoch, **options), epoch_images(epoch, **options))


@given(seed=seeds(), epoch=epochs)
def test_other_epochs_and_other_seeds_have_other_orders(seed, epoch):
    loader = Loader(numbered(40), 4, shuffle=True, seed=seed)
    other_seed = Loader(numbered(40), 4, shuffle=True, seed=seed + 1)
    assert order(loader, epoch) not in (order(loader, epoch + 1), order(other_seed, epoch), list(range(40)))


@given(seed=seeds(), epoch=epochs, crop=st.integers(0, 2), flip=st.booleans(), batch_size=st.integers(1, 20))
def test_what_happens_to_an_image_does_not_depend_on_the_size_of_the_batches(seed, epoch, crop, flip, batch_size):
    options = dict(crop=crop, flip=flip, seed=seed)
    whole = epoch_images(epoch, batch_size=20, shuffle=True, **options)
    parts = epoch_images(epoch, batch_size=batch_size, shuffle=True, **options)
    np.testing.assert_array_equal(parts, whole[: len(parts)])


@given(seed=seeds())
def test_other_epochs_crop_and_flip_otherwise(seed):
    options = dict(batch_size=20, seed=seed)
    for change in ({"crop": 2}, {"flip": True}):
        assert (epoch_images(0, **change, **options) != epoch_images(1, **change, **options)).any()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_batches_are_normalised_in_the_dtype_that_was_asked_for(dtype):
    dataset = noise()
    (batch,) = Loader(dataset, 20, dtype=dtype).epoch()
    assert batch.images.dtype == dtype
    np.testing.assert_array_equal(batch.images, dataset.normalise(dataset.images, dtype))


@given(seed=seeds())
def test_cropping_brings_in_black_not_the_mean(seed):
    """Padding comes before normalisation, so that what comes in from outside is what a black pixel is."""
    dataset = numbered(20, shape=(1, 3, 3))
    bright = Dataset(np.full((20, 1, 3, 3), 255, "uint8"), dataset.labels, dataset.classes, (0.5,), (0.25,))
    for batch in Loader(bright, 20, crop=2, seed=seed).epoch():
        assert set(np.unique(batch.images)) == {-2.0, 2.0}


@pytest.mark.parametrize("batch_size", [0, -3])
def test_a_batch_size_below_one_is_refused(batch_size):
    with pytest.raises(ValueError, match=f"batch size of at least 1, got {batch_size}"):
        Loader(numbered(3), batch_size)
