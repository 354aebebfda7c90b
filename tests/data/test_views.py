"""Random views of images."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from strategies import seeds

from tinyvit import Key
from tinyvit.data import colour, views


@given(seed=seeds(), shares=st.tuples(st.floats(0.05, 1), st.floats(0.05, 1)).map(sorted))
def test_boxes_lie_in_the_image_and_cover_the_shares_asked_for(seed, shares):
    top, left, height, width = np.moveaxis(views.random_boxes(Key(seed).uniform((20, 3, 4)), *shares), -1, 0)
    assert (top >= 0).all() and (left >= 0).all() and (top + height <= 1 + 1e-9).all()
    assert (left + width <= 1 + 1e-9).all() and (height > 0).all() and (width > 0).all()
    area, inside = height * width, np.maximum(height, width) < 1
    assert (area <= shares[1] + 1e-9).all() and (area[inside] >= shares[0] - 1e-9).all()
    ratio = width / height
    assert (ratio[inside] >= 0.75 - 1e-6).all() and (ratio[inside] <= 4 / 3 + 1e-6).all()


@given(seed=seeds(), side=st.integers(1, 20), size=st.tuples(st.integers(1, 16), st.integers(1, 16)))
def test_a_crop_is_what_pillow_cuts_out_and_resizes(seed, side, size):
    generator = np.random.default_rng(seed)
    images = generator.random((2, 2, *size)) * 255
    boxes, mirrored = views.random_boxes(generator.random((2, 3, 4)), 0.2, 1.0), generator.random((2, 3)) < 0.5
    found = views.resized_crops(images, boxes, mirrored, side)
    assert found.shape == (2, 3, 2, side, side)
    for b, n, channel in np.ndindex(2, 3, 2):
        top, left, height, width = boxes[b, n] * np.tile(size, 2)
        image = Image.fromarray(images[b, channel].astype("float32"))
        corners = (left, top, min(left + width, size[1]), min(top + height, size[0]))
        expected = np.asarray(image.resize((side, side), Image.Resampling.BICUBIC, corners))
        np.testing.assert_allclose(found[b, n, channel], expected[:, ::-1] if mirrored[b, n] else expected, atol=0.02)


@pytest.mark.parametrize("number, solarized, expected", [
    ([0.5, 0.5, 0.5, 0.0, 0.9, 0.9], False, lambda x: x),
    ([1.0, 0.5, 0.5, 0.0, 0.9, 0.9], False, lambda x: colour.brightness(x, np.array([1.4]))),
    ([0.5, 0.0, 0.5, 0.0, 0.9, 0.9], False, lambda x: colour.contrast(x, np.array([0.6]))),
    ([0.5, 0.5, 1.0, 0.0, 0.9, 0.9], False, lambda x: colour.saturation(x, np.array([1.2]))),
    ([1.0, 0.0, 1.0, 0.8, 0.9, 0.9], False, lambda x: x),
    ([1.0, 0.0, 1.0, 0.8, 0.1, 0.9], False, lambda x: np.repeat(colour.grey(x), 3, axis=1)),
    ([0.5, 0.5, 0.5, 0.0, 0.9, 0.1], True, lambda x: np.where(x >= 128, 255 - x, x)),
    ([0.5, 0.5, 0.5, 0.0, 0.9, 0.1], False, lambda x: x),
    ([0.5, 0.5, 0.5, 0.0, 0.9, 0.2], True, lambda x: x),
], ids=["none", "brightness", "contrast", "saturation", "not changed", "grey", "solarized", "not chosen",
        "spared"])  # fmt: skip
def test_each_number_changes_the_colours_as_it_should(number, solarized, expected):
    levels = np.random.default_rng(0).random((1, 3, 4, 4)) * 255
    found = views.recolour(levels, np.array([number]), 0.4, np.array([solarized]))
    np.testing.assert_allclose(found, expected(levels), atol=1e-10)
