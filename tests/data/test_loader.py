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


@given(n=lengths, batch_size=batch_sizes, seed=seeds(), epoch=epochs)
def test_a_shuffled_epoch_shows_every_image_once_except_those_of_a_small_partial_batch(n, batch_size, seed, epoch):
    loader = Loader(numbered(n), batch_size, shuffle=True, seed=seed)
    batches = list(loader.epoch(epoch))
    sizes, seen = [len(targets) for _, targets in batches], np.concatenate([targets for _, targets in batches])
    rest = n % min(batch_size, n)
    assert len(seen) == len(set(seen)) == (n if rest > n / 8 else n - rest)
    assert max(sizes) <= batch_size and max(sizes) - min(sizes) <= 1 and len(sizes) == len(loader)
    assert rest > n / 8 or set(sizes) == {min(batch_size, n)}
    for images, targets in batches:
        np.testing.assert_array_equal(images[:, 0, 0, 0], targets)


@given(n=lengths, batch_size=batch_sizes)
def test_without_shuffling_the_order_is_kept_and_the_last_partial_batch_is_shown(n, batch_size):
    loader = Loader(numbered(n), batch_size)
    assert order(loader) == list(range(n))
    assert [len(batch.targets) for batch in loader.epoch()][:-1] == [batch_size] * (len(loader) - 1)


@given(seed=seeds(), epoch=epochs)
def test_other_epochs_and_other_seeds_have_other_orders(seed, epoch):
    loader = Loader(numbered(40), 4, shuffle=True, seed=seed)
    other_seed = Loader(numbered(40), 4, shuffle=True, seed=seed + 1)
    assert order(loader, epoch) not in (order(loader, epoch + 1), order(other_seed, epoch), list(range(40)))


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


def test_of_each_batch_there_is_the_part_that_was_asked_for():
    part = loader(part=lambda size: slice(size // 3, size // 2))
    for whole, got in zip(loader().epoch(2), part.epoch(2), strict=True):
        for one, other in zip(whole, got, strict=True):
            np.testing.assert_array_equal(other, one[1:2])


@pytest.mark.parametrize("start", [-1, 6])
def test_a_start_outside_of_the_epoch_is_refused(start):
    with pytest.raises(ValueError, match=f"a batch from 0 to 5, got {start}"):
        loader().epoch(0, start)


@given(seed=seeds(), shuffle=st.booleans(), ahead=st.integers(1, 6))
def test_a_thread_prepares_the_same_bits(seed, shuffle, ahead):
    for augment in (everything, Augmentation()):
        options = dict(seed=seed, shuffle=shuffle, augment=augment)
        assert_same_batches(loader(ahead=ahead, **options).epoch(3), loader(ahead=0, **options).epoch(3))


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


def never_begin():
    loader().epoch()


@pytest.mark.parametrize("leave", [leave_by_break, leave_by_exception, never_begin])
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


@pytest.mark.cuda  # g++ compiles the sources of kernels
def test_on_a_device_the_data_set_is_moved_once_nothing_waits_and_there_is_no_thread(monkeypatch):
    moved = []

    def asarray(x, dtype=None):
        moved.append(np.shape(x))
        return pretend_cupy.from_host(x, dtype)

    expected = loader(ahead=0).epoch()
    monkeypatch.setitem(sys.modules, "cupy", pretend_cupy.cupy)
    monkeypatch.setattr(pretend_cupy.cupy, "asarray", asarray)
    monkeypatch.setattr(backend, "why_no_gpu", lambda number: None)
    for batch, wanted in zip(loader(device="cuda").epoch(), expected):
        assert not threads()
        for a, b in zip(batch, wanted):
            assert type(a) is pretend_cupy.ndarray
            np.testing.assert_array_equal(a.get(), b)
    assert moved.count(noise().images.shape) == 1
