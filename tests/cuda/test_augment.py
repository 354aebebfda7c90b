"""The changes to images in one kernel, and their mixing, have the bits of the array code."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import seeds

from tinyvit import Key, reference
from tinyvit.data import Augmentation, Dataset
from tinyvit.data.augment import CHANGED, MIXED, Changes, Mixing, augment, changed, mixed
from tinyvit.data.mixing import share_outside
from tinyvit.data.policy import COLOUR, GEOMETRY, OPERATIONS, Choices

ALL = COLOUR | GEOMETRY
sizes = st.integers(1, 24) | st.sampled_from([33, 48])  # of pixels: less than a block has threads, and more than a tile
boxes = st.sampled_from([None, (0, 1, 0, 1), (1, 3, 0, 2), (2, 2, 1, 4)])


def dataset(seed, B, C, *shape, levels=256):
    """Random images, or videos, of bytes."""
    images = np.random.default_rng(seed).integers(0, levels, (B, C, *shape)).astype("uint8")
    return Dataset(images, np.arange(B) % 4, tuple("abcd"), (0.4, 0.5, 0.6)[:C], (0.1, 0.2, 0.3)[:C], 255.0)


def assert_same(cupy, data, changes):
    got = CHANGED.find(cupy.asarray(data.images))(cupy.asarray(data.images), changes, data, "float32")
    with reference():
        expected = changed(data.images, changes, data, "float32")
    assert got.dtype == "float32"
    np.testing.assert_array_equal(got.get(), expected)


def some_changes(seed, B, H, W, operations, reach=1.0):
    """Any matrices, operations, amounts and rectangles."""
    generator = np.random.default_rng(seed)
    matrices = np.tile(np.eye(3), (B, 1, 1))
    matrices[:, :2] += reach * generator.normal(size=(B, 2, 3)) * (1, 1, H)
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


@pytest.mark.parametrize("name", OPERATIONS)
@given(seed=seeds(), C=st.sampled_from([1, 3]), share=st.floats(-1, 1), side=st.sampled_from([1, 2, 3, 17, 36]))
def test_every_operation_has_the_bits_of_the_reference(cupy, name, seed, C, share, side):
    spec = ALL.get(name)
    amount = 0.0 if spec is None else spec.trivial * (share if spec.signed else abs(share))
    choices = Choices(np.full((2, 1), OPERATIONS.index(name)), np.full((2, 1), amount))
    assert_same(cupy, dataset(seed, 2, C, side, side + 1), Changes(None, choices, None))


@given(seed=seeds(), C=st.integers(1, 3), frames=st.integers(1, 5), side=st.integers(1, 9))
def test_the_frames_of_a_video_are_changed_alike(cupy, seed, C, frames, side):
    changes = some_changes(seed, 2, side, side, 0)
    assert_same(cupy, dataset(seed, 2, C, frames, side, side), changes._replace(choices=None))


def test_colours_of_two_channels_take_the_reference(cupy):
    data = dataset(0, 2, 2, 5, 5)
    choices = Choices(np.full((2, 1), OPERATIONS.index("brightness")), np.full((2, 1), 0.5))
    assert_same(cupy, data, Changes(None, choices, None))


@given(seed=seeds(), B=st.integers(1, 7), C=st.integers(1, 3), H=st.integers(3, 9), W=st.integers(4, 9),
       mixes=st.booleans(), share=st.floats(0, 1), box=boxes,
       kind=st.sampled_from(["int64", "uint8", "int32"]))  # fmt: skip
def test_images_and_labels_are_mixed_with_the_bits_of_the_reference(cupy, seed, B, C, H, W, mixes, share, box, kind):
    mixing = Mixing(share if box is None else share_outside(box, H, W), box) if mixes else None
    generator = np.random.default_rng(seed)
    images = generator.normal(size=(B, C, H, W)).astype("float32")
    labels, before = generator.integers(0, 5, B).astype(kind), images.copy()
    there = cupy.asarray(images)
    got = MIXED.find(there)(there, cupy.asarray(labels), 5, mixing)
    for one, other in zip(got, mixed(images, labels, 5, mixing), strict=True):
        assert one.dtype == "float32"
        np.testing.assert_array_equal(one.get(), other)
    np.testing.assert_array_equal(there.get(), before)


def test_a_mixed_batch_takes_three_kernels(cupy, monkeypatch):
    from tinyvit.kernels.cuda import augment as kernels

    def counted(launch, name, *arguments):
        launched.append(name)
        launch(name, *arguments)

    launched, augmentation = [], Augmentation(crop=2, flip=True, policy="trivial", erase=0.5, mixup=0.8, cutmix=1.0)
    for source in (kernels.IMAGES, kernels.PAIRS):
        monkeypatch.setattr(source, "launch", partial(counted, source.launch))
    data = dataset(0, 6, 3, 8, 8)
    images, labels = cupy.asarray(data.images), cupy.asarray(data.labels)
    augment(images, labels, augmentation, data, Key(0))
    assert len(launched) == 3
    launched.clear()
    with reference():
        augment(images, labels, augmentation, data, Key(0))
    assert not launched


def test_the_order_of_the_threads_changes_no_bit(cupy, any_order):
    data = dataset(1, 4, 3, 34, 36)
    again = Choices(np.full((4, 3), OPERATIONS.index("sharpness")), np.full((4, 3), 0.7))
    assert_same(cupy, data, some_changes(1, 4, 34, 36, 6))
    assert_same(cupy, data, Changes(None, again, None))
    for name in ("equalize", "autocontrast", "contrast"):
        choices = Choices(np.full((4, 2), OPERATIONS.index(name)), np.full((4, 2), 0.7))
        assert_same(cupy, data, Changes(None, choices, None))
    images = cupy.asarray(data.images.astype("float32"))
    for mixing in (Mixing(0.3, None), Mixing(0.5, (2, 9, 4, 20))):
        MIXED.find(images)(images, cupy.asarray(data.labels), 4, mixing)
