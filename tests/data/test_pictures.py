"""Many images as one picture."""

import io

import numpy as np
import pytest
from PIL import Image

from tinyvit.data.pictures import gif, grid, png


def test_a_grid_has_every_image_in_its_place_in_squares_of_its_pixels():
    images = np.random.default_rng(0).random((5, 3, 24, 16))
    picture = grid(images, 3)
    assert picture.shape == (2 * 50 + 2, 3 * 34 + 2, 3) and picture.dtype == "uint8"
    for number, image in enumerate(images):
        top, left = 2 + number // 3 * 50, 2 + number % 3 * 34
        shown = picture[top : top + 48 : 2, left : left + 32 : 2]
        np.testing.assert_array_equal(shown, np.rint(255 * image).transpose(1, 2, 0))
    assert (picture[52:, 70:] == 255).all()  # nothing in the last place


def test_grey_images_and_large_ones_keep_their_pixels():
    picture = grid(np.full((1, 1, 60, 50), 0.5), 1)
    assert picture.shape == (64, 54, 3) and set(np.unique(picture)) == {128, 255}


def test_images_of_other_channels_are_refused():
    with pytest.raises(ValueError, match="a picture shows images of 1 or 3 channels, got 4; write them as numbers"):
        grid(np.zeros((1, 4, 8, 8)), 1)


def test_files_hold_what_was_drawn():
    pictures = [grid(np.full((1, 1, 48, 48), share), 1) for share in (0.0, 0.5, 1.0)]
    with Image.open(io.BytesIO(png(pictures[1]))) as read:
        np.testing.assert_array_equal(np.asarray(read), pictures[1])
    with Image.open(io.BytesIO(gif(pictures))) as read:
        assert read.n_frames == 3 and read.info["loop"] == 0
