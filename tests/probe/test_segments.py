"""Segments of attention, and their overlap with masks."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import seeds

from tinyvit.probe import attention_segments, draw_segments, overlap

shapes = st.tuples(st.integers(1, 3), st.integers(1, 4), st.integers(1, 4))


@given(shape=shapes, mass=st.floats(0.05, 0.95), seed=seeds())
def test_a_segment_is_the_smallest_set_of_patches_with_the_share_asked_for(shape, mass, seed):
    maps = np.random.default_rng(seed).random(shape)
    for one, segment in zip(maps, attention_segments(maps, mass)):
        inside, outside = np.sort(one[segment]), one[~segment]
        assert inside.sum() >= mass * one.sum() - 1e-12
        assert inside[1:].sum() < mass * one.sum()
        assert not outside.size or inside.min() >= outside.max()


@given(shape=shapes, scale=st.integers(1, 3), seed=seeds())
def test_overlap_is_intersection_over_union_of_pixels(shape, scale, seed):
    generator = np.random.default_rng(seed)
    segments = generator.random(shape) < 0.5
    masks = generator.random((shape[0], scale * shape[1], scale * shape[2])) < 0.5
    for segment, mask, found in zip(segments, masks, overlap(segments, masks)):
        pixels = np.kron(segment, np.ones((scale, scale))).astype(bool)
        either = (pixels | mask).sum()
        assert found == ((pixels & mask).sum() / either if either else 1)
    np.testing.assert_array_equal(overlap(masks, masks), 1)
    np.testing.assert_array_equal(overlap(masks, ~masks), 0)


def test_what_does_not_fit_is_refused():
    for segments, masks in ((bool, "uint8"), ("float64", bool)):  # 255 is not 1
        with pytest.raises(ValueError, match="expected segments and masks of bools, such as masks > 0, got"):
            overlap(np.ones((2, 2), segments), np.ones((4, 4), masks))


def test_a_picture_shows_images_masks_and_the_segments_of_each_model():
    images, masks = np.random.default_rng(0).random((2, 3, 8, 8)), np.zeros((2, 8, 8), bool)
    figure = draw_segments(images, masks, [np.ones((2, 4, 4), bool), np.zeros((2, 4, 4), bool)], ["a", "b"])
    assert [ax.get_ylabel() for ax in figure.axes if ax.get_ylabel()] == ["image", "mask", "a", "b"]
    assert len(figure.axes) == 8
