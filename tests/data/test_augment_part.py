"""A part of a batch, augmented by itself, has the bits that it has in the whole batch."""

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from strategies import seeds

from tinyvit import Key
from tinyvit.data import Augmentation, Loader
from tinyvit.data.augment import augment
from tinyvit.data.digits import digits

SOME = [
    Augmentation(), Augmentation(crop=1, flip=True, erase=0.5), Augmentation(policy="trivial", mixup=0.3),
    Augmentation(cutmix=1.0, crop=2), Augmentation(mixup=0.5, cutmix=0.5, mix_prob=0.7, policy="rand"),
]  # fmt: skip


@given(augmentation=st.sampled_from(SOME), size=st.integers(1, 11), ranks=st.integers(1, 4), seed=seeds())
def test_parts_together_are_the_whole_batch(augmentation, size, ranks, seed):
    train = digits().train
    images, labels, key = train.images[:size], train.labels[:size], Key(seed, 3).skip(20)
    whole = augment(images, labels, augmentation, train, key)
    edges = [size * rank // ranks for rank in range(ranks + 1)]
    for start, stop in pairwise(edges):
        if stop > start:
            for got, expected in zip(
                augment(images, labels, augmentation, train, key, part=slice(start, stop)), whole, strict=True
            ):
                np.testing.assert_array_equal(got, expected[start:stop])


def test_a_loader_gives_the_part_that_it_is_asked_for():
    train, augmentation = digits().train.subset(np.arange(50)), Augmentation(crop=1, mixup=0.4)
    whole = Loader(train, 20, shuffle=True, augment=augmentation, seed=4)
    part = Loader(train, 20, shuffle=True, augment=augmentation, seed=4, part=lambda size: slice(size // 3, size // 2))
    for expected, got in zip(whole.epoch(2), part.epoch(2), strict=True):
        for one, other in zip(expected, got, strict=True):
            np.testing.assert_array_equal(other, one[len(one) // 3 : len(one) // 2])
