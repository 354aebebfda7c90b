
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from photos import CLASSES, photos, random_vit, saved
from PIL import Image
from strategies import seeds

from tinyvit.data.preprocessing import Preprocessing
from tinyvit.training.predict import MAX_BATCH_IMAGES, predict
from tinyvit.training.tasks.classification import logits_of


@pytest.mark.parametrize("tta", [False, True])
@pytest.mark.parametrize("size", [1, MAX_BATCH_IMAGES, MAX_BATCH_IMAGES + 1])
def test_files_are_prepared_as_the_images_of_the_data_set_are(tmp_path, size, tta):
    model, dataset = random_vit(), photos(size)
    logits = logits_of(model, dataset, tta=tta)
    probs = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    paths = saved(dataset, tmp_path)
    predictions = list(predict(model, Preprocessing.from_dataset(dataset), paths, top=6, tta=tta))
    assert [p.path for p in predictions] == paths
    for prediction, expected in zip(predictions, probs):
        assert prediction.error is None
        got = dict(prediction.result)
        np.testing.assert_allclose([got[name] for name in CLASSES], expected, rtol=1e-9)
        assert [p for _, p in prediction.result] == sorted(got.values(), reverse=True)


def test_the_negative_of_an_image_is_read_as_the_image_and_what_seems_to_be_one_is_reported(tmp_path):
    dataset, model = photos(1), random_vit()
    light = 200 + dataset.images // 8
    dark, light = saved(replace(photos(2), images=np.concatenate([255 - light, light])), tmp_path)
    prepared = replace(Preprocessing.from_dataset(dataset), mean=(0.2, 0.2, 0.2))

    def read(path, **options):
        return next(predict(model, prepared, [path], **options)).result

    assert read(light, invert=True) == read(dark)
    with pytest.warns(UserWarning, match="is mostly light, and the training images were mostly dark: try --invert"):
        read(light)
    prepared = replace(prepared, mean=(0.8, 0.8, 0.8))
    with pytest.warns(UserWarning, match="is mostly dark, and the training images were mostly light: leave out --inv"):
        assert read(light, invert=True) != read(light)


def test_classes_of_equal_probability_keep_their_order(tmp_path):
    dataset = photos(1)
    model = random_vit()
    model.head.weight.data = np.zeros(model.head.weight.shape)
    model.head.bias.data = np.array([0.0, 1, 0, 1, 0, 0])
    (prediction,) = predict(model, Preprocessing.from_dataset(dataset), saved(dataset, tmp_path))
    assert [name for name, _ in prediction.result] == ["dog", "emu", "cat", "cow", "fox"]


@given(bad=st.sets(st.integers(0, 9), max_size=10), seed=seeds())
def test_unreadable_files_are_reported_in_their_place_and_the_others_processed(tmp_path_factory, bad, seed):
    folder = tmp_path_factory.mktemp("some")
    model, dataset = random_vit(seed), photos(10, seed)
    for i, image in enumerate(dataset.images):
        path = folder / f"{i}.png"
        path.write_bytes(b"damaged") if i in bad else Image.fromarray(image[0]).save(path)
    predictions = list(predict(model, Preprocessing.from_dataset(dataset), [folder / f"{i}.png" for i in range(10)]))
    for i, prediction in enumerate(predictions):
        assert prediction.path == folder / f"{i}.png"
        assert (prediction.error is not None) == (i in bad) == (prediction.result is None)
        assert i not in bad or prediction.error.startswith(f"{folder / f'{i}.png'} can't be read")


def test_all_images_of_folders_are_taken_and_an_empty_folder_is_an_error(tmp_path):
    dataset = photos(3)
    paths = saved(dataset, tmp_path)
    (tmp_path / "empty").mkdir()
    given_paths = [paths[2], tmp_path, tmp_path / "empty", str(tmp_path / "nowhere.png")]
    predictions = list(predict(random_vit(), Preprocessing.from_dataset(dataset), given_paths))
    assert [p.path for p in predictions] == [paths[2], *paths, tmp_path / "empty", tmp_path / "nowhere.png"]
    errors = [p.error for p in predictions]
    assert errors[:4] == 4 * [None]
    assert "empty holds no images" in errors[4] and "nowhere.png can't be read" in errors[5]


def test_weights_that_are_nan_or_infinite_are_refused(tmp_path):
    dataset, model = photos(1), random_vit()
    model.head.bias.data = np.array([0, 1, np.nan, 0, 0, 0])
    with pytest.raises(ValueError, match=r"NaN or infinite: the weights are damaged"):
        list(predict(model, Preprocessing.from_dataset(dataset), saved(dataset, tmp_path)))


@pytest.mark.parametrize(("options", "message"), [
    ({"top": 0}, "at least 1 class of each image, got top 0"),
    ({"threads": 0}, "threads from 1 to 4,096, got 0"),
])  # fmt: skip
def test_invalid_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        list(predict(random_vit(), Preprocessing.from_dataset(photos(1)), [], **options))
