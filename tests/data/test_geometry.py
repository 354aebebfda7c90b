from math import cos, floor, radians, sin

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from strategies import images_and_patch, seeds

from tinyvit import Key
from tinyvit.data import geometry

images = images_and_patch().map(lambda drawn: drawn[0])  # (B, C, H, W), read-only, in any memory order
paddings = st.integers(0, 9)
DTYPES = ["uint8", "int64", "float32", "float64"]


def uniform(seed, *shape):
    """Random numbers in [0, 1), including the largest possible one."""
    numbers = Key(seed).uniform(shape)
    numbers.flat[0] = 1 - 2.0**-24
    return numbers


@given(x=images, padding=paddings, seed=seeds())
def test_a_crop_pads_and_cuts_out_a_window_image_by_image(x, padding, seed):
    u = uniform(seed, len(x), 2)
    height, width = x.shape[2:]
    for image, numbers, got in zip(x, u, geometry.resample(x, geometry.crop(u, padding))):
        top, left = (int(number * (2 * padding + 1)) for number in numbers)
        roomy = np.pad(image, ((0, 0), (padding, padding), (padding, padding)))
        np.testing.assert_array_equal(got, roomy[:, top : top + height, left : left + width])


@given(x=images, seed=seeds())
def test_a_flip_mirrors_the_images_whose_number_is_below_a_half(x, seed):
    u = uniform(seed, len(x))
    for image, number, got in zip(x, u, geometry.resample(x, geometry.flip(u))):
        np.testing.assert_array_equal(got, image[:, :, ::-1] if number < 0.5 else image)


@given(x=images, padding=paddings, seed=seeds())
def test_a_crop_and_then_a_flip_are_their_product(x, padding, seed):
    u = uniform(seed, len(x), 3)
    crop, flip = geometry.crop(u[:, :2], padding), geometry.flip(u[:, 2])
    one_by_one = geometry.resample(geometry.resample(x, crop), flip)
    np.testing.assert_array_equal(geometry.resample(x, crop @ flip), one_by_one)


def read_one_by_one(image, matrix):
    """One image resampled pixel by pixel, and a mask of pixels so near an edge that either neighbour is right."""
    H, W = image.shape[1:]
    result, undecided = np.zeros_like(image), np.zeros((H, W), bool)
    for i in range(H):
        for j in range(W):
            y, x = i - (H - 1) / 2, j - (W - 1) / 2
            row = matrix[0][0] * y + matrix[0][1] * x + matrix[0][2] + (H - 1) / 2 + 0.5
            column = matrix[1][0] * y + matrix[1][1] * x + matrix[1][2] + (W - 1) / 2 + 0.5
            undecided[i, j] = any(abs(place - round(place)) < 1e-4 for place in (row, column))
            if 0 <= floor(row) < H and 0 <= floor(column) < W:
                result[:, i, j] = image[:, floor(row), floor(column)]
    return result, undecided


@given(x=images, seed=seeds(), reach=st.floats(0, 3))
def test_resampling_reads_each_pixel_where_the_matrix_says(x, seed, reach):
    matrices = np.zeros((len(x), 3, 3))
    matrices[:, :2] = reach * np.random.default_rng(seed).standard_normal((len(x), 2, 3))
    for image, matrix, got in zip(x, matrices, geometry.resample(x, matrices)):
        expected, undecided = read_one_by_one(image, matrix)
        np.testing.assert_array_equal(got[:, ~undecided], expected[:, ~undecided])


@given(angle=st.floats(-180, 180), slope=st.floats(-2, 2), y=st.floats(-9, 9), x=st.floats(-9, 9))
def test_each_matrix_says_where_a_pixel_is_read(angle, slope, y, x):
    a = radians(angle)
    for matrix, expected in [
        (geometry.rotate(np.array([angle])), (cos(a) * y + sin(a) * x, cos(a) * x - sin(a) * y)),
        (geometry.shear_x(np.array([slope])), (y, x + slope * y)),
        (geometry.shear_y(np.array([slope])), (y + slope * x, x)),
        (geometry.translate(np.array([[slope, angle]])), (y + slope, x + angle)),
    ]:
        np.testing.assert_allclose(matrix[0] @ (y, x, 1), (*expected, 1), atol=1e-12)


def test_a_quarter_turn_is_counter_clockwise():
    x = np.arange(2 * 3 * 25).reshape(2, 3, 5, 5)
    np.testing.assert_array_equal(geometry.resample(x, geometry.rotate(np.full(2, 90.0))), np.rot90(x, axes=(2, 3)))


@given(x=images, seed=seeds(), dtype=st.sampled_from(DTYPES))
def test_resampling_keeps_shape_and_dtype_and_shares_no_memory(x, seed, dtype):
    x = x.astype(dtype)
    x.flags.writeable = False
    y = geometry.resample(x, geometry.crop(uniform(seed, len(x), 2), 2))
    assert (y.shape, y.dtype) == (x.shape, x.dtype)
    assert not np.shares_memory(x, y)
