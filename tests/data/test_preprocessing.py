import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import seeds

from tinyvit import data
from tinyvit.data.preprocessing import Preprocessing

FIELDS = {
    "classes": ("cat", "dog"),
    "channels": 3,
    "img_size": (4, 5),
    "mean": (0.4, 0.5, 0.6),
    "std": (0.1, 0.2, 0.3),
    "scale": 255.0,
}
PREPARED = Preprocessing(**FIELDS)


def photos(seed, count=3, shape=(3, 4, 5)):
    images = np.random.default_rng(seed).integers(0, 256, (count, *shape)).astype("uint8")
    images.flags.writeable = False
    return images


@given(seed=seeds(), dtype=st.sampled_from(["float32", "float64"]))
def test_images_of_bytes_are_prepared_as_the_data_set_prepares_them_bit_for_bit(seed, dtype):
    images = photos(seed)
    dataset = data.Dataset(images, np.array([0, 1, 1]), ("cat", "dog"), (0.41, 0.52, 0.63), (0.12, 0.23, 0.34))
    prepared = Preprocessing.from_json(Preprocessing.from_dataset(dataset).to_json(), "source")(images, dtype)
    assert prepared.dtype == dtype
    np.testing.assert_array_equal(prepared, dataset.normalise(images, dtype))


def test_the_digits_as_photos_are_prepared_as_the_digits_up_to_the_eight_bits_of_a_photo():
    test = data.digits().test
    images = np.rint(test.images * (255 / 16)).astype("uint8")
    difference = Preprocessing.from_dataset(test)(images, "float64") - test.normalise(test.images, "float64")
    assert 0 < abs(difference).max() <= (0.5 / 255 / test.std[0]) * (1 + 1e-12)


@given(
    classes=st.lists(st.text(min_size=1), unique=True).map(tuple),  # none, for a model without a head
    mean=st.tuples(*3 * [st.floats(-9, 9)]),
    std=st.tuples(*3 * [st.floats(1e-9, 9)]),
    scale=st.floats(1e-3, 1e6),
)
def test_a_written_preprocessing_is_read_back_unchanged(classes, mean, std, scale):
    prepared = Preprocessing(classes, 3, (7, 9), mean, std, scale)
    assert Preprocessing.from_json(prepared.to_json(), "source") == prepared


def test_a_file_without_resample_and_crop_is_read_with_their_defaults():
    older = {name: value for name, value in json.loads(PREPARED.to_json()).items() if name not in ("resample", "crop")}
    assert Preprocessing.from_json(json.dumps(older), "source") == PREPARED


WRONG = {
    "classes": [["cat", "cat"], ["cat", 3], "cat"], "channels": [0, 2, 3.0], "img_size": [[4], [0, 4], 4],
    "mean": [[0.5], [0.5, 0.5, float("nan")]], "std": [[0.5], [0.5, 0.5, 0]], "scale": [0, 10**400, "255", None],
    "resample": ["cubic"], "crop": [0, 1.5, True],
}  # fmt: skip


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in WRONG.items() for value in values])
def test_an_invalid_value_is_refused_with_its_source(name, value):
    text = json.dumps(json.loads(PREPARED.to_json()) | {name: value})
    with pytest.raises(ValueError, match=r"^run/preprocessing\.json doesn't say how images are prepared: \w"):
        Preprocessing.from_json(text, "run/preprocessing.json")


@pytest.mark.parametrize(
    "text", ["", "\x00\ufffd", "[]", "null", "{}", '{"classes": ["cat"]}', "[" * 100_000, '{"extra": 1}', "1e999"]
)
def test_text_that_is_not_a_preprocessing_is_refused_with_its_source(text):
    with pytest.raises(ValueError, match=r"^source doesn't say how images are prepared: .{1,300}$"):
        Preprocessing.from_json(text, "source")


@pytest.mark.parametrize(("shape", "dtype"), [((1, 3, 4, 5), "float64"), ((1, 1, 4, 5), "uint8"), ((3, 4, 5), "uint8")])
def test_images_of_another_shape_or_dtype_are_refused_with_what_was_given(shape, dtype):
    with pytest.raises(ValueError, match=rf"expected uint8 images \(B, 3, 4, 5\), got {dtype} \({shape[0]}, "):
        PREPARED(np.zeros(shape, dtype))
