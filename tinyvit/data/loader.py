"""Batches from a data set, in an order that depends on the seed alone."""

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np

from tinyvit.arrays import Array, array_module
from tinyvit.backend import as_device, current, to_device
from tinyvit.data.augment import Augmentation, augment
from tinyvit.keys import Key
from tinyvit.validation import require

NO_AUGMENTATION = Augmentation()
MAX_DROPPED_FRACTION = 1 / 8  # of the images at most, in a shuffled epoch


class Batch(NamedTuple):
    images: Array   # (B, C, H, W)  normalised; objects (B,) where they are of several sizes
    targets: Array  # (B,) labels, (B, H, W) those of pixels, or (B, K) probabilities where images are mixed


class Loader:
    """Batches of a `Dataset`, augmented, normalised and on the model's device.

    shuffle   a new order in every epoch, and the last images left out if they don't fill a batch. Where these are more
              than an eighth of all, none is left out: batches are then smaller and as even as possible
    augment   random changes to the images, an `Augmentation`
    ahead     batches that a thread prepares in advance, on the CPU; 0 has no thread. On a GPU there is none either: the
              host doesn't wait for what is queued there
    part      the function from the size of a batch to the slice of it that is wanted, with the bits that it has in the
              whole batch; None: all of it

    The data set moves to the device with the first batch, and stays there. The random numbers of a batch on a GPU, a
    few per image, are copied there through CuPy's pinned memory, queued after earlier work: CuPy's `asarray` doesn't
    wait (since version 13, without `blocking=True`). Nothing else waits either: no boolean mask indexes, and no number
    is read back.
    """

    def __init__(
        self, dataset, batch_size, *,
        shuffle=False, augment=NO_AUGMENTATION, seed=0, dtype="float32", device="cpu", ahead=2, part=None,
    ):  # fmt: skip
        require(batch_size >= 1, "expected a batch size of at least 1", batch_size)
        self.dataset, self.batch_size = dataset, min(batch_size, len(dataset))
        self.shuffle, self.augmentation, self.seed = shuffle, augment, seed
        self.dtype, self.device, self.ahead, self.part = dtype, as_device(device), ahead, part

    def __len__(self):
        """Batches in an epoch."""
        return len(self.edges) - 1

    @cached_property
    def edges(self):
        """The places in the order of an epoch at which batches begin, and at which the last one ends."""
        n, size = len(self.dataset), self.batch_size
        full, rest = divmod(n, size)
        if not self.shuffle:
            return *range(0, n, size), n
        if rest > MAX_DROPPED_FRACTION * n:
            return tuple(n * i // (full + 1) for i in range(full + 2))
        return tuple(range(0, n + 1, size))

    def epoch(self, number=0, start=0):
        """The batches of epoch `number` from batch `start` on, always the same ones for the same number.

        A thread that prepares them ends with the iterator: when it is used up, closed, or forgotten. An error in the
        thread is raised here. Raises ValueError for a start that is not within the epoch.
        """
        require(0 <= start <= len(self), f"expected to start at a batch from 0 to {len(self)}", start)
        key = Key(self.seed, step=number)
        rows = np.arange(len(self.dataset))
        if self.shuffle:
            rows = key.at("order").generator().permutation(rows)
        batch, numbers = partial(self.batch, key, rows), range(start, len(self))
        if self.ahead and self.device == "cpu":
            return ahead_of_use(batch, numbers, self.ahead)
        return (batch(i) for i in numbers)

    def batch(self, key, rows, i):
        """Batch i of the epoch of this key, in which images have the order `rows`."""
        images, labels = self.arrays
        first, end = self.edges[i : i + 2]
        key = key.skip(first)
        with current(self.device):
            chosen = rows[first:end]
            images, labels = (array[array_module(array).asarray(chosen)] for array in (images, labels))
            part = self.part and self.part(end - first)
            return Batch(*augment(images, labels, self.augmentation, self.dataset, key, self.dtype, part))

    @cached_property
    def arrays(self):
        """Images and labels on the device."""
        return to_device(self.dataset.images, self.device), to_device(self.dataset.labels, self.device)


def ahead_of_use(function, pieces, count):
    """function(piece) for each piece, in order, computed in a thread that is at most `count` results ahead."""
    with ThreadPoolExecutor(1, thread_name_prefix="tinyvit-loader") as thread:
        waiting = deque()
        try:
            for piece in pieces:
                # A copy of the context carries settings such as numpy.errstate into the thread.
                waiting.append(thread.submit(copy_context().run, function, piece))
                if len(waiting) > count:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:  # also when the iterator is closed early: pending pieces never start
            for future in waiting:
                future.cancel()
