import gc
import sys
import threading
import time

import numpy as np
import pretend_cupy
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import seeds

from tinyvit import backend
from tinyvit.data import Augmentation, Dataset, Loader

lengths = st.integers(1, 40)
batch_sizes = st.integers(1, 50)
epochs = st.integers(0, 5)
shift_and_flip = Augmentation(crop=2, flip=True)
everything = Augmentation(crop=1, flip=True, policy="trivial", erase=0.5, mixup=0.8, cutmix=1.0)


def numbered(n, shape=(1, 1, 1)):
    """n images whose pixels are the image's number; normalisation doesn't change them."""
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
    """All images of an epoch of `noise`, from all its batches."""
    return np.concatenate([batch.images for batch in Loader(noise(), **options).epoch(epoch)])


@given(n=lengths, batch_size=batch_sizes, seed=seeds(), epoch=epochs)
def test_a_shuffled_epoch_shows_every_image_once_except_those_of_a_partial_batch(n, batch_size, seed, epoch):
    seen = order(Loader(numbered(n), batch_size, shuffle=True, seed=seed), epoch)
    rest = n % min(batch_size, n)
    assert len(seen) == len(set(seen)) == (n if rest > n / 8 else n - rest)


@given(n=lengths, batch_size=batch_sizes, seed=seeds())
def test_shuffled_batches_are_full_or_of_nearly_equal_size(n, batch_size, seed):
    sizes = [len(batch.targets) for batch in Loader(numbered(n), batch_size, shuffle=True, seed=seed).epoch()]
    assert max(sizes) <= batch_size and max(sizes) - min(sizes) <= 1
    if n % min(batch_size, n) <= n / 8:
        assert set(sizes) == {min(batch_size, n)}


@pytest.mark.parametrize(("n", "sizes"), [(1, [1]), (100, [50, 50]), (250, [62, 63, 62, 63]), (1000, [64] * 15)])
def test_few_images_are_all_shown_in_smaller_batches_and_many_in_full_ones(n, sizes):
    loader = Loader(numbered(1).subset(np.zeros(n, int)), 64, shuffle=True)
    assert [len(batch.targets) for batch in loader.epoch()] == sizes


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
    options = dict(batch_size=4, shuffle=True, augment=shift_and_flip, seed=seed)
    np.testing.assert_array_equal(epoch_images(epoch, **options), epoch_images(epoch, **options))


@given(seed=seeds(), epoch=epochs)
def test_other_epochs_and_other_seeds_have_other_orders(seed, epoch):
    loader = Loader(numbered(40), 4, shuffle=True, seed=seed)
    other_seed = Loader(numbered(40), 4, shuffle=True, seed=seed + 1)
    assert order(loader, epoch) not in (order(loader, epoch + 1), order(other_seed, epoch), list(range(40)))


@given(seed=seeds(), epoch=epochs, crop=st.integers(0, 2), flip=st.booleans(), batch_size=st.integers(1, 20))
def test_what_happens_to_an_image_does_not_depend_on_the_size_of_the_batches(seed, epoch, crop, flip, batch_size):
    options = dict(augment=Augmentation(crop, flip), seed=seed)
    whole = epoch_images(epoch, batch_size=20, shuffle=True, **options)
    parts = epoch_images(epoch, batch_size=batch_size, shuffle=True, **options)
    np.testing.assert_array_equal(parts, whole[: len(parts)])


@given(seed=seeds())
def test_other_epochs_crop_and_flip_differently(seed):
    options = dict(batch_size=20, seed=seed)
    for augment in (Augmentation(crop=2), Augmentation(flip=True)):
        assert (epoch_images(0, augment=augment, **options) != epoch_images(1, augment=augment, **options)).any()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_batches_are_normalised_in_the_requested_dtype(dtype):
    dataset = noise()
    (batch,) = Loader(dataset, 20, dtype=dtype).epoch()
    assert batch.images.dtype == dtype
    np.testing.assert_array_equal(batch.images, dataset.normalise(dataset.images, dtype))


@given(seed=seeds())
def test_cropping_brings_in_black_not_the_mean(seed):
    """Padding comes before normalisation, so padded pixels equal black ones."""
    dataset = numbered(20, shape=(1, 3, 3))
    bright = Dataset(np.full((20, 1, 3, 3), 255, "uint8"), dataset.labels, dataset.classes, (0.5,), (0.25,))
    for batch in Loader(bright, 20, augment=Augmentation(crop=2), seed=seed).epoch():
        assert set(np.unique(batch.images)) == {-2.0, 2.0}


@pytest.mark.parametrize("batch_size", [0, -3])
def test_a_batch_size_below_one_is_refused(batch_size):
    with pytest.raises(ValueError, match=f"batch size of at least 1, got {batch_size}"):
        Loader(numbered(3), batch_size)


def loader(**options):
    """Five batches of four images, with all augmentations."""
    return Loader(noise(), 4, **{"shuffle": True, "augment": everything} | options)


def assert_same_batches(got, expected):
    got, expected = list(got), list(expected)
    assert len(got) == len(expected)
    for a, b in zip(got, expected):
        np.testing.assert_array_equal(a.images, b.images)
        np.testing.assert_array_equal(a.targets, b.targets)


@given(seed=seeds(), epoch=epochs, start=st.integers(0, 5), ahead=st.integers(0, 6))
def test_an_epoch_started_in_the_middle_has_the_remaining_batches_unchanged(seed, epoch, start, ahead):
    whole = list(loader(seed=seed).epoch(epoch))
    assert_same_batches(loader(seed=seed, ahead=ahead).epoch(epoch, start), whole[start:])


@pytest.mark.parametrize("start", [-1, 6])
def test_a_start_outside_of_the_epoch_is_refused(start):
    with pytest.raises(ValueError, match=f"a batch from 0 to 5, got {start}"):
        loader().epoch(0, start)


@given(seed=seeds(), shuffle=st.booleans(), ahead=st.integers(1, 6))
def test_a_thread_prepares_the_same_bits(seed, shuffle, ahead):
    for augment in (everything, Augmentation()):
        options = dict(seed=seed, shuffle=shuffle, augment=augment)
        assert_same_batches(loader(ahead=ahead, **options).epoch(3), loader(ahead=0, **options).epoch(3))


def test_a_negative_number_of_batches_ahead_is_refused():
    with pytest.raises(ValueError, match="at least 0 batches ahead, got -1"):
        loader(ahead=-1)


def threads():
    """The loaders' threads that are alive."""
    return [thread for thread in threading.enumerate() if thread.name.startswith("tinyvit-loader")]


class Watched(Loader):
    """Records the requested batches; batch `broken` raises an error."""

    broken = None

    def batch(self, key, rows, i):
        self.asked = [*getattr(self, "asked", []), i]
        if i == self.broken:
            raise OSError(f"batch {i} can't be read")
        return super().batch(key, rows, i)


def soon(holds):
    """Whether a condition becomes true within ten seconds."""
    end = time.monotonic() + 10
    while not holds() and time.monotonic() < end:
        time.sleep(0.001)
    return holds()


def test_the_thread_is_two_batches_ahead_and_no_more():
    watched = Watched(noise(), 4)
    batches = watched.epoch()
    next(batches)
    assert soon(lambda: watched.asked == [0, 1, 2])
    time.sleep(0.02)
    assert watched.asked == [0, 1, 2] and len(threads()) == 1
    next(batches)
    assert soon(lambda: watched.asked == [0, 1, 2, 3])
    batches.close()


def leave_by_break():
    for _ in loader().epoch():
        assert len(threads()) == 1
        break


def leave_by_exception():
    with pytest.raises(KeyboardInterrupt):
        for _ in loader().epoch():
            raise KeyboardInterrupt


def leave_by_close():
    batches = loader().epoch()
    next(batches)
    batches.close()


def never_begin():
    loader().epoch()


def use_up():
    assert len(list(loader().epoch())) == 5


@pytest.mark.parametrize("leave", [leave_by_break, leave_by_exception, leave_by_close, never_begin, use_up])
def test_no_thread_outlives_its_iterator(leave):
    leave()
    gc.collect()  # an exception keeps the iterator alive with its traceback
    assert not threads()


@pytest.mark.parametrize("ahead", [0, 1, 2, 9])
def test_an_error_in_the_thread_arrives_after_the_batches_before_it(ahead):
    watched = Watched(noise(), 4, ahead=ahead)
    watched.broken = 3
    seen = []
    with pytest.raises(OSError, match="batch 3 can't be read"):
        for batch in watched.epoch():
            seen.extend(batch.targets)
    assert seen == list(range(12))
    assert not threads()


def test_two_epochs_at_once_do_not_disturb_each_other():
    both = loader()
    pairs = list(zip(both.epoch(0), both.epoch(1)))
    for number in (0, 1):
        assert_same_batches([pair[number] for pair in pairs], loader(ahead=0).epoch(number))


@pytest.mark.cuda  # g++ compiles the sources of kernels
def test_on_a_device_the_data_set_is_moved_once_nothing_waits_and_there_is_no_thread(monkeypatch):
    moved = []

    def asarray(x, dtype=None):
        moved.append(np.shape(x))
        return pretend_cupy.from_host(x, dtype)

    expected = loader(ahead=0).epoch()
    monkeypatch.setitem(sys.modules, "cupy", pretend_cupy.cupy)
    monkeypatch.setattr(pretend_cupy.cupy, "asarray", asarray)
    monkeypatch.setattr(backend, "why_no_gpu", lambda: None)
    for batch, wanted in zip(loader(device="cuda").epoch(), expected):
        assert not threads()
        for a, b in zip(batch, wanted):
            assert type(a) is pretend_cupy.ndarray
            np.testing.assert_array_equal(a.get(), b)
    assert moved.count(noise().images.shape) == 1
