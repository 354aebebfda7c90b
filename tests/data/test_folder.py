from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from strategies import seeds

from tinyvit import data
from tinyvit.data.folder import folder, is_among_images, set_aside, statistics
from tinyvit.data.images import image_files, read_image
from tinyvit.models import QwenVisionConfig


def make(root, counts, shade=lambda name, i: (i, 2 * i, 3 * i)):
    """Write the given number of constant 6×8 pictures into each folder, by name; returns the root."""
    for name, count in counts.items():
        (root / name).mkdir(parents=True, exist_ok=True)
        for i in range(count):
            Image.new("RGB", (8, 6), shade(name, i)).save(root / name / f"{i:03}.png")
    return root


def reds(dataset):
    """Class and red value of each image, which identify the picture."""
    return [(dataset.classes[k], int(image[0, 0, 0])) for k, image in zip(dataset.labels, dataset.images)]


# -- classes and splits ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def two_classes(tmp_path_factory):
    return make(tmp_path_factory.mktemp("folder"), {"dog": 10, "cat": 25})


def test_paths_among_the_images_are_told_from_paths_beside_them(tmp_path):
    one, two = make(tmp_path / "one", {"cat": 1, "dog": 1}), make(tmp_path / "two", {"train/cat": 1, "val/cat": 1})
    among = {one, one / "new", one / "cat" / "new", two / "train", two / "train" / "new", two / "val" / "cat"}
    beside = {tmp_path, tmp_path / "new", one / ".." / "new", two, two / "new", tmp_path / "one-more"}
    for path in among | beside:
        assert is_among_images(one, path) + is_among_images(two, str(path)) == (path in among), path


def test_each_sub_folder_is_a_class_and_classes_are_sorted_by_name(two_classes):
    train, test = folder(two_classes, 4)
    assert train.classes == test.classes == ("cat", "dog")
    everything = [("cat", i) for i in range(25)] + [("dog", i) for i in range(10)]
    assert sorted(reds(train) + reds(test)) == everything


@given(count=st.integers(2, 60))
def test_of_every_class_with_two_images_some_are_for_training_and_some_for_the_test(count):
    paths = [Path("cat", f"{i}.png") for i in range(count)]
    train, test = (part["cat"] for part in set_aside({"cat": paths}))
    assert sorted(train + test) == sorted(paths) and train
    assert len(test) == max(1, round(count / 5))


def test_the_split_is_the_same_wherever_the_folder_is_and_whatever_the_threads(two_classes, tmp_path):
    copy = make(tmp_path / "elsewhere", {"cat": 25, "dog": 10})
    for one, other in zip(folder(two_classes, 4, threads=1), folder(str(copy), (4, 4), threads=3)):
        np.testing.assert_array_equal(one.images, other.images)
        np.testing.assert_array_equal(one.labels, other.labels)


@pytest.mark.parametrize("held_out", ["test", "val"])
def test_training_and_test_images_may_be_in_separate_folders(tmp_path, held_out):
    make(tmp_path, {"train/cat": 3, "train/dog": 1, f"{held_out}/cat": 1, f"{held_out}/dog": 2})
    train, test = folder(tmp_path, 4)
    assert reds(train) == [("cat", 0), ("cat", 1), ("cat", 2), ("dog", 0)]
    assert reds(test) == [("cat", 0), ("dog", 0), ("dog", 1)]


def test_train_may_be_the_name_of_a_class(tmp_path):
    assert folder(make(tmp_path, {"train": 2, "car": 2}), 4).train.classes == ("car", "train")


# -- pixels ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("channels", "size", "shape"), [(1, (2, 5), (1, 2, 5)), (None, 3, (3, 3, 3))])
def test_images_have_the_requested_size_and_channels(two_classes, channels, size, shape):
    for part in data.load("folder", two_classes, size, channels):
        assert (part.images.shape[1:], part.images.dtype, part.scale) == (shape, "uint8", 255)


@given(seed=seeds(), channels=st.sampled_from([1, 3]))
def test_training_pixels_have_mean_0_and_variance_1_in_each_channel(seed, channels):
    images = np.random.default_rng(seed).integers(0, 256, (9, channels, 3, 5)).astype("uint8")
    dataset = data.Dataset(images, np.zeros(9, int), ("cat",), *statistics(images))
    pixels = dataset.normalise(images, "float64")
    np.testing.assert_allclose(pixels.mean((0, 2, 3)), 0, atol=1e-12)
    np.testing.assert_allclose(pixels.var((0, 2, 3)), 1, rtol=1e-12)


def test_a_constant_channel_is_normalised_to_0(tmp_path):
    train = folder(make(tmp_path, {"a": 4, "b": 4}, lambda name, i: (70, 10 * i, 0)), 4).train
    pixels = train.normalise(train.images, "float64")
    assert train.std[0] == train.std[2] == 1
    assert abs(pixels[:, [0, 2]]).max() < 1e-12 and abs(pixels[:, 1]).max() > 0.5


# -- refused input --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("counts", "message"), [
    ({}, "has no sub-folder; expected one sub-folder of images a class"),
    ({"cat": 5}, "has only cat; .*at least two classes"),
    ({"cat": 2, "dog": 0, "cow": 0}, "classes without an image: cow, dog"),
    ({"cat": 2, "dog": 1}, r"class dog has a single image, .*000\.png"),
    ({"train/cat": 2, "train/dog": 2}, "neither test nor val; add one, or give .*train"),
    ({"train/cat": 2, "train/dog": 2, "test/cat": 1, "test/cow": 1}, "only one of them has cow, dog"),
    ({"train/cat": 1, "train/dog": 1, "val/cat": 1, "val/dog": 0}, "val has classes without an image: dog"),
    ({"train/cat": 1, "train/dog": 1, "test": 2}, "test has no sub-folder"),
])  # fmt: skip
def test_a_folder_of_another_layout_is_refused_with_what_is_missing(tmp_path, counts, message):
    with pytest.raises(ValueError, match=message):
        folder(make(tmp_path, counts), 4)


def test_an_image_that_cannot_be_read_is_named(tmp_path):
    make(tmp_path, {"cat": 4, "dog": 4})
    (tmp_path / "dog" / "002.png").write_bytes(b"damaged")
    with pytest.raises(ValueError, match=r"002\.png can't be read as an image"):
        folder(tmp_path, 4)


def test_what_is_no_folder_or_has_no_size_is_refused(tmp_path, two_classes):
    (tmp_path / "file").touch()
    for root, size, message in (
        (tmp_path / "nowhere", 4, "nowhere doesn't exist; expected a folder with one sub-folder"),
        (tmp_path / "file", 4, "file is not a folder; expected a folder with"),
        (None, 4, "needs --data-dir: one sub-folder of images a class"),
        (two_classes, None, "the data set 'folder' needs an img_size"),
    ):
        with pytest.raises(ValueError, match=message):
            data.load("folder", root, size)


def test_images_that_do_not_fit_in_memory_are_refused_before_they_are_read(two_classes, monkeypatch):
    needed = 35 * 3 * 64 * 64
    monkeypatch.setattr("tinyvit.backend.physical_memory", lambda: needed)
    assert len(folder(two_classes, 64).train) == 28
    monkeypatch.setattr("tinyvit.backend.physical_memory", lambda: needed - 1)
    monkeypatch.setattr("tinyvit.data.folder.read_all", None)
    with pytest.raises(ValueError, match=r"35 images of 64×64 need 0\.0 GiB, .*or a smaller image size"):
        folder(two_classes, 64)


@pytest.mark.parametrize(("resample", "crop"), [("nearest", None), ("bilinear", 0.5)])
def test_images_are_resized_as_requested(tmp_path, resample, crop):
    make(tmp_path, {"a": 4, "b": 4}, lambda name, i: (10 * i, 0, 0))
    generator = np.random.default_rng(0)
    for path in image_files(tmp_path):
        Image.fromarray(generator.integers(0, 256, (30, 20, 3)).astype("uint8")).save(path)
    train, test = data.load("folder", tmp_path, 4, 3, resample=resample, crop=crop)
    got = {image.tobytes() for image in (*train.images, *test.images)}
    expected = [read_image(path, 3, 4, resample=resample, crop=crop) for path in image_files(tmp_path)]
    assert got == {image.tobytes() for image in expected}


def test_images_of_a_folder_keep_their_sizes_up_to_the_nearest_units(tmp_path):
    for name, size in (("cat/a", (8, 9)), ("cat/b", (30, 20)), ("dog/a", (3, 11)), ("dog/b", (12, 13))):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        Image.new("RGB", size, (255, 0, 51)).save(tmp_path / f"{name}.png")
    split = folder(tmp_path, QwenVisionConfig().nearest_size, crop=None)
    assert {image.shape for part in split for image in part.images} == {(3, 8, 8), (3, 16, 32), (3, 16, 16)}
    assert split.train.mean == (1.0, 0.0, 0.2) and split.train.std == (1.0, 1.0, 1.0)
