from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from strategies import images_and_patch, seeds

from tinyvit import data
from tinyvit.data.preprocessing import Preprocessing
from tinyvit.data.resize import CHANNELS_AT_A_TIME, areas, shrink

SIDES = st.integers(1, 40)


def dataset(seed=0, count=3, channels=3, size=(8, 8), scale=255.0, dtype="uint8"):
    images = np.random.default_rng(seed).integers(0, int(scale) + 1, (count, channels, *size)).astype(dtype)
    labels = np.arange(count) % 2
    return data.Dataset(images, labels, ("cat", "dog"), (0.5,) * channels, (0.2,) * channels, scale)


@given(seed=seeds(), size=st.tuples(SIDES, SIDES), new=st.tuples(SIDES, SIDES), channels=st.sampled_from([1, 3]),
       crop=st.sampled_from([1.0, 0.7, None]))  # fmt: skip
def test_a_resampled_image_is_what_predict_reads_from_a_file_of_it(tmp_path_factory, seed, size, new, channels, crop):
    before = dataset(seed, 1, channels, size)
    pixels = before.images[0]
    path = tmp_path_factory.getbasetemp() / "image.png"
    Image.fromarray(pixels[0] if channels == 1 else pixels.transpose(1, 2, 0)).save(path)
    after = data.resize_dataset(before, new, crop=crop if size != new else 1.0)  # which is left as it is
    (seen,) = replace(Preprocessing.from_dataset(after), crop=crop if size != new else 1.0).read([path])
    np.testing.assert_array_equal(after.images[0], seen)
    assert after.images.dtype == "uint8"


@given(seed=seeds(), new=st.tuples(SIDES, SIDES))
def test_pixels_stay_between_dark_and_fully_lit_although_a_cubic_overshoots(seed, new):
    after = data.resize_dataset(dataset(seed, scale=16.0), new).images
    assert after.min() >= 0 and after.max() <= 16


def test_more_images_than_a_thread_takes_at_a_time_keep_their_order_labels_and_statistics():
    before = dataset(count=2 * CHANNELS_AT_A_TIME + 5)
    after = data.resize_dataset(before, 12)
    for row in (0, CHANNELS_AT_A_TIME - 1, CHANNELS_AT_A_TIME, 2 * CHANNELS_AT_A_TIME + 4):
        np.testing.assert_array_equal(after.images[row], data.resize_dataset(before.subset([row]), 12).images[0])
    assert (after.classes, after.mean, after.std) == (before.classes, before.mean, before.std)
    np.testing.assert_array_equal(after.labels, before.labels)


def test_images_that_already_have_the_size_are_unchanged():
    before = dataset()
    assert data.resize_dataset(before, 8) is before


def test_images_that_do_not_fit_in_memory_are_refused_before_they_are_made(monkeypatch):
    monkeypatch.setattr("tinyvit.backend.physical_memory", lambda: 1 << 20)
    with pytest.raises(ValueError, match=r"3 images of 1000×1000 need .* a smaller image size"):
        data.resize_dataset(dataset(), 1000)


# -- smaller images, by array code -------------------------------------------------------------------------------------


@given(images_and_patch())
def test_whole_factors_average_whole_blocks(drawn):
    x, (p, q) = drawn
    B, C, H, W = x.shape
    expected = x.reshape(B, C, H // p, p, W // q, q).mean((3, 5))
    np.testing.assert_allclose(shrink(x, (H // p, W // q)), expected, atol=1e-13)


@given(old=st.integers(1, 40), share=st.floats(0.01, 1))
def test_every_pixel_is_used_and_every_new_one_is_a_mean(old, share):
    new = max(1, round(share * old))
    weights = areas(old, new)
    assert weights.min() >= 0
    np.testing.assert_allclose(weights.sum(1), 1, atol=1e-12)
    np.testing.assert_allclose(weights.sum(0), new / old, atol=1e-12)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_dtype_stays_and_the_full_size_is_the_image_itself(dtype):
    x = np.ones((2, 1, 6, 4), dtype)
    assert shrink(x, (6, 4)) is x
    assert shrink(x, (3, 3)).dtype == dtype and shrink(x, (3, 3)).shape == (2, 1, 3, 3)
