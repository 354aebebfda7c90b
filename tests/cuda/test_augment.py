"""The changes to images in one kernel have the bits of the array code."""

from functools import partial

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from strategies import seeds

from tinyvit import Key, reference
from tinyvit.data import Augmentation, Dataset
from tinyvit.data.augment import CHANGED, Changes, apply_changes, augment
from tinyvit.data.policy import COLOUR, GEOMETRY, OPERATIONS, Choices
from tinyvit.kernels.cuda.augment import SOURCE

ALL = COLOUR | GEOMETRY
sizes = st.integers(1, 24) | st.sampled_from([33, 48])  # of pixels: less than a block has threads, and more than a tile


def dataset(seed, B, C, *shape, levels=256):
    """Random images, or videos, of bytes."""
    images = np.random.default_rng(seed).integers(0, levels, (B, C, *shape)).astype("uint8")
    return Dataset(images, np.arange(B) % 4, tuple("abcd"), (0.4, 0.5, 0.6)[:C], (0.1, 0.2, 0.3)[:C], 255.0)


def assert_same(cupy, data, changes):
    got = CHANGED.find(cupy.asarray(data.images))(cupy.asarray(data.images), changes, data, "float32")
    with reference():
        expected = apply_changes(data.images, changes, data, "float32")
    assert got.dtype == "float32"
    np.testing.assert_array_equal(got.get(), expected)


def some_changes(seed, B, H, W, operations):
    """Any matrices, operations, amounts and rectangles."""
    generator = np.random.default_rng(seed)
    matrices = np.tile(np.eye(3), (B, 1, 1))
    matrices[:, :2] += generator.normal(size=(B, 2, 3)) * (1, 1, H)
    operation = generator.integers(0, len(OPERATIONS), (B, operations))
    full = np.array([0, *(spec.trivial for spec in ALL.values())])[operation]
    signed = np.array([False, *(spec.signed for spec in ALL.values())])[operation]
    amount = full * generator.uniform(np.where(signed, -1, 0), 1)
    rectangles = np.sort(generator.integers(0, [H + 1, H + 1, W + 1, W + 1], (B, 4)).reshape(B, 2, 2), 2).reshape(B, 4)
    return Changes(matrices, Choices(operation, amount), rectangles)


@given(seed=seeds(), B=st.integers(1, 5), C=st.sampled_from([1, 3]), H=sizes, W=sizes, operations=st.integers(0, 4),
       levels=st.sampled_from([2, 30, 256]))  # fmt: skip
def test_any_changes_have_the_bits_of_the_reference(cupy, seed, B, C, H, W, operations, levels):
    assert_same(cupy, dataset(seed, B, C, H, W, levels=levels), some_changes(seed, B, H, W, operations))


@given(seed=seeds(), C=st.integers(1, 3), frames=st.integers(1, 5), side=st.integers(1, 9))
def test_the_frames_of_a_video_are_changed_alike(cupy, seed, C, frames, side):
    changes = some_changes(seed, 2, side, side, 0)
    assert_same(cupy, dataset(seed, 2, C, frames, side, side), changes._replace(choices=None))
    brighter = Changes(None, Choices(np.full((2, 1), OPERATIONS.index("brightness")), np.full((2, 1), 0.5)), None)
    assert_same(cupy, dataset(seed, 2, 2, side, side), brighter)  # of two channels: by the reference


def test_a_batch_takes_one_kernel_and_is_mixed_as_on_the_cpu(cupy, monkeypatch):
    def counted(launch, name, *arguments):
        launched.append(name)
        launch(name, *arguments)

    launched, data = [], dataset(0, 6, 3, 8, 8)
    monkeypatch.setattr(SOURCE, "launch", partial(counted, SOURCE.launch))
    for name in ("mixup", "cutmix"):
        augmentation = Augmentation(crop=2, flip=True, policy="trivial", erase=0.5, **{name: 1.0})
        got = augment(cupy.asarray(data.images), cupy.asarray(data.labels), augmentation, data, Key(0))
        expected = augment(data.images, data.labels, augmentation, data, Key(0))
        for one, other in zip(got, expected, strict=True):
            np.testing.assert_array_equal(one.get(), other)
    assert len(launched) == 2
