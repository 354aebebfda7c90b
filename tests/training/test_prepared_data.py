from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from tinyvit import ViTConfig, data
from tinyvit.data.folder import folder
from tinyvit.data.preprocessing import Preprocessing
from tinyvit.functional.patches import as_pair
from tinyvit.training import TrainConfig
from tinyvit.training.run_folder import RunFolder
from tinyvit.training.trained import load_prepared_data


def trained(size=8, channels=1, dataset="digits", resample="bicubic", crop=1.0, **fields):
    """A trained model's attributes that are needed here."""
    config = TrainConfig(dataset, ViTConfig(size, 2, in_chans=channels, embed_dim=8, depth=1, num_heads=2), **fields)
    prepared = Preprocessing(
        tuple("0123456789"), channels, as_pair(size), (0.4,) * channels, (0.3,) * channels, 16.0, resample, crop
    )
    return SimpleNamespace(folder=RunFolder("run"), config=config, preprocessing=prepared)


@pytest.fixture
def pictures(tmp_path):
    """A folder of noise in two classes, wider than high."""
    generator = np.random.default_rng(0)
    for name in ("noise", "more noise"):
        (tmp_path / name).mkdir()
        for i in range(5):
            pixels = generator.integers(0, 256, (20, 30, 3)).astype("uint8")
            Image.fromarray(pixels).save(tmp_path / name / f"{i}.png")
    return tmp_path


def assert_same(got, expected, mean=(0.4,), std=(0.3,)):
    for one, other in zip(got, expected):
        np.testing.assert_array_equal(one.images, other.images)
        np.testing.assert_array_equal(one.labels, other.labels)
        assert (one.classes, one.scale, one.mean, one.std) == (other.classes, other.scale, mean, std)


def test_the_runs_own_data_have_its_classes_and_its_mean_and_std():
    assert_same(load_prepared_data(trained()), data.digits())
    assert_same(load_prepared_data(trained(classes=("3", "1"))), data.choose(data.digits(), ("3", "1")))
    assert_same(load_prepared_data(trained(), "digits", classes=("3", "1")), data.choose(data.digits(), ("3", "1")))


def test_given_classes_need_not_be_those_of_the_run():
    split = load_prepared_data(trained(classes=("3", "1")), classes=("5", "6", "7"), images=30, seed=4)
    assert_same(split, data.choose(data.digits(), ("5", "6", "7"), 30, seed=4))


def test_another_data_set_is_used_with_all_its_classes(pictures):
    split = load_prepared_data(trained(channels=3, classes=("3", "1")), "folder", pictures)
    assert_same(split, folder(pictures, 8, 3), (0.4,) * 3, (0.3,) * 3)


def test_images_of_another_size_are_resized_as_those_of_the_run():
    split = load_prepared_data(trained(size=12, resample="bilinear"))
    assert split.train.images.shape[1:] == (1, 12, 12)
    assert_same(split, [data.resize_dataset(part, 12, "bilinear") for part in data.digits()])


def test_images_of_another_shape_are_stretched_where_those_of_the_run_were():
    split = load_prepared_data(trained((8, 12), crop=None))
    assert_same(split, [data.resize_dataset(part, (8, 12), crop=None) for part in data.digits()])
    split = load_prepared_data(trained((8, 12), crop=0.5))
    assert_same(split, [data.resize_dataset(part, (8, 12)) for part in data.digits()])


def test_files_are_resized_and_cropped_as_those_of_the_run(pictures):
    split = load_prepared_data(trained(channels=3, resample="box", crop=None), "folder", pictures)
    assert_same(split, folder(pictures, 8, 3, resample="box", crop=None), (0.4,) * 3, (0.3,) * 3)
    assert (split.train.images != folder(pictures, 8, 3).train.images).any()


def test_images_with_other_channels_are_refused():
    with pytest.raises(ValueError, match="the model reads 3-channel images, got 1-channel ones in digits$"):
        load_prepared_data(trained(channels=3))


def test_a_run_without_a_data_folder_requires_a_data_set_or_a_folder(pictures):
    with pytest.raises(ValueError, match="needs --data-dir"):
        load_prepared_data(trained(dataset="folder"))
    assert load_prepared_data(trained(dataset="folder"), "digits").test.classes == tuple("0123456789")
    split = load_prepared_data(trained(channels=3, dataset="folder"), data_dir=pictures)
    assert split.test.classes == ("more noise", "noise")
