import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from strategies import SIZES, images_and_patch, seeds

from tinyvit import Key
from tinyvit.data.augment import random_crop, random_flip

images = images_and_patch().map(lambda drawn: drawn[0])  # (B, C, H, W), read-only, in any memory order
paddings = st.integers(0, 9)


def uniform(seed, *shape):
    """Random numbers in [0, 1), the largest possible one among them."""
    numbers = Key(seed).uniform(shape)
    numbers.flat[0] = 1 - 2.0**-24
    return numbers


@given(x=images, padding=paddings, seed=seeds())
def test_random_crop_pads_and_cuts_out_a_window_image_by_image(x, padding, seed):
    u = uniform(seed, len(x), 2)
    height, width = x.shape[2:]
    for image, numbers, got in zip(x, u, random_crop(x, padding, u)):
        top, left = (int(number * (2 * padding + 1)) for number in numbers)
        roomy = np.pad(image, ((0, 0), (padding, padding), (padding, padding)))
        np.testing.assert_array_equal(got, roomy[:, top : top + height, left : left + width])


@given(x=images, seed=seeds())
def test_a_crop_without_padding_changes_nothing(x, seed):
    np.testing.assert_array_equal(random_crop(x, 0, uniform(seed, len(x), 2)), x)


@given(padding=SIZES, seed=seeds())
def test_a_crop_shifts_by_up_to_the_padding_in_every_direction(padding, seed):
    side = 2 * padding + 1
    x = np.zeros((40 * side**2, 1, side, side), "uint8")
    x[:, :, padding, padding] = 1  # one lit pixel in the middle, which no shift moves out of the image
    _, _, rows, columns = np.nonzero(random_crop(x, padding, uniform(seed, len(x), 2)))
    assert set(zip(rows, columns)) == set(np.ndindex(side, side))


@given(x=images, seed=seeds())
def test_random_flip_mirrors_the_images_whose_number_is_below_a_half(x, seed):
    u = uniform(seed, len(x))
    for image, number, got in zip(x, u, random_flip(x, u)):
        np.testing.assert_array_equal(got, image[:, :, ::-1] if number < 0.5 else image)


@given(x=images, padding=paddings, seed=seeds(), dtype=st.sampled_from(["uint8", "float32"]))
def test_augmentation_keeps_shape_and_dtype_and_shares_no_memory(x, padding, seed, dtype):
    x = x.astype(dtype)
    for y in (random_crop(x, padding, uniform(seed, len(x), 2)), random_flip(x, uniform(seed, len(x)))):
        assert (y.shape, y.dtype) == (x.shape, x.dtype)
        assert not np.shares_memory(x, y)
