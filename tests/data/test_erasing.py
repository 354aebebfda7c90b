import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from strategies import images_and_patch, seeds

from tinyvit import Key
from tinyvit.data.erasing import AREA, ASPECT, erase, rectangles

images = images_and_patch().map(lambda drawn: drawn[0])
sides = st.integers(1, 40)


@given(seed=seeds(), H=sides, W=sides)
def test_every_rectangle_lies_within_the_image_with_its_area_in_range_up_to_half_a_pixel_at_each_side(seed, H, W):
    top, bottom, left, right = rectangles(Key(seed).uniform((100, 5)), 1.0, H, W).T
    assert (top >= 0).all() and (top < bottom).all() and (bottom <= H).all()
    assert (left >= 0).all() and (left < right).all() and (right <= W).all()
    height, width = bottom - top, right - left
    assert ((height - 0.5) * (width - 0.5) <= AREA[1] * H * W).all()
    assert ((height + 0.5) * (width + 0.5) >= AREA[0] * H * W).all()


@given(seed=seeds(), side=st.integers(20, 40))
def test_the_aspect_is_in_range_up_to_half_a_pixel_at_each_side(seed, side):
    top, bottom, left, right = rectangles(Key(seed).uniform((100, 5)), 1.0, side, side).T
    height, width = bottom - top, right - left
    assert ((height - 0.5) / (width + 0.5) <= ASPECT[1]).all()
    assert ((height + 0.5) / (width - 0.5) >= ASPECT[0]).all()


def test_areas_and_places_cover_their_range():
    top, bottom, left, right = rectangles(Key(0).uniform((2000, 5)), 1.0, 40, 40).T
    area = (bottom - top) * (right - left) / 1600
    assert area.min() < 0.03 and area.max() > 0.38 and abs(area.mean() - 0.21) < 0.01
    assert top.min() == left.min() == 0 and bottom.max() == right.max() == 40
    assert abs(np.log((bottom - top) / (right - left)).mean()) < 0.05  # high ones as often as wide ones


@given(seed=seeds(), probability=st.floats(0, 1))
def test_the_images_whose_number_is_below_the_probability_are_erased(seed, probability):
    uniform = Key(seed).uniform((50, 5))
    top, bottom, _, _ = rectangles(uniform, probability, 8, 6).T
    np.testing.assert_array_equal(bottom > top, uniform[:, 0].astype(float) < probability)


@given(x=images, seed=seeds(), probability=st.sampled_from([0.0, 0.5, 1.0]))
def test_erasing_zeroes_the_rectangle_and_leaves_all_else(x, seed, probability):
    where = rectangles(Key(seed).uniform((len(x), 5)), probability, *x.shape[2:])
    y = erase(x, where)
    assert y.dtype == x.dtype and not np.shares_memory(x, y)
    for before, after, (top, bottom, left, right) in zip(x, y, where):
        expected = before.copy()
        expected[:, top:bottom, left:right] = 0
        np.testing.assert_array_equal(after, expected)
