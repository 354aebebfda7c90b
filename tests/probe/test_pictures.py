import numpy as np

from tinyvit.probe.pictures import display_pixels, mosaic


def test_three_channels_are_colours_and_of_any_other_number_the_mean_is_grey():
    image = np.random.default_rng(0).uniform(size=(3, 4, 5))
    np.testing.assert_array_equal(display_pixels(image), image.transpose(1, 2, 0))
    np.testing.assert_array_equal(display_pixels(image[:1]), image[0])
    np.testing.assert_array_equal(display_pixels(image[:2]), image[:2].mean(0))


def test_pixels_out_of_range_are_shown_as_black_and_white():
    np.testing.assert_array_equal(display_pixels(np.array([[[-1.0, 0.5, 2.0]]])), [[0, 0.5, 1]])


def test_a_mosaic_has_the_tiles_in_their_places_and_gaps_between_them():
    tiles = np.arange(24.0).reshape(2, 3, 2, 2)
    whole = mosaic(tiles)
    assert whole.shape == (5, 8)
    np.testing.assert_array_equal(whole[3:, 3:5], tiles[1, 1])
    assert np.isnan(whole[2]).all() and np.isnan(whole[:, 2]).all() and np.isnan(whole).sum() == 16
