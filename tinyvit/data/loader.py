"""Batches from a data set, in an order that depends on a seed and on nothing else."""

from typing import NamedTuple

import numpy as np

from tinyvit.backend import Array, Key, to_device
from tinyvit.data.augment import random_crop, random_flip


class Batch(NamedTuple):
    images: Array   # (B, C, H, W)  normalised
    targets: Array  # (B,)


class Loader:
    """Batches of a `Dataset`, normalised and on the model's device.

    shuffle      a new order in every epoch, and the last images left out if they don't fill a batch
    crop, flip   augmentation: a shift by up to so many pixels, and mirroring
    """

    def __init__(
        self, dataset, batch_size, *, shuffle=False, crop=0, flip=False, seed=0, dtype="float32", device="cpu"
    ):
        if batch_size < 1:
            raise ValueError(f"expected a batch size of at least 1, got {batch_size}")
        if crop < 0:
            raise ValueError(f"expected a crop of at least 0 pixels, got {crop}")
        self.dataset, self.batch_size = dataset, min(batch_size, len(dataset))
        self.shuffle, self.crop, self.flip = shuffle, crop, flip
        self.seed, self.dtype, self.device = seed, dtype, device

    def __len__(self):
        """Batches in an epoch."""
        full, rest = divmod(len(self.dataset), self.batch_size)
        return full if self.shuffle else full + (rest > 0)

    def epoch(self, number=0):
        """The batches of epoch `number`, always the same ones for the same number."""
        key = Key(self.seed, step=number)
        rows = np.arange(len(self.dataset))
        if self.shuffle:
            rows = key.at("order").generator().permutation(rows)
        for i in range(len(self)):
            first = i * self.batch_size
            chosen = rows[first : first + self.batch_size]
            images = self.dataset.images[chosen]
            if self.crop:
                images = random_crop(images, self.crop, key.at("crop").skip(first).uniform((len(chosen), 2)))
            if self.flip:
                images = random_flip(images, key.at("flip").skip(first).uniform((len(chosen),)))
            images = self.dataset.normalise(images, self.dtype)
            yield Batch(to_device(images, self.device), to_device(self.dataset.labels[chosen], self.device))
