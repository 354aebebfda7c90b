from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tinyvit.data import Augmentation, Dataset, gallery, policy

PAGE = Path(__file__).parents[2] / "notebooks" / "augmentation.md"


@pytest.fixture(scope="module")
def dataset():
    images = np.random.default_rng(0).integers(30, 220, (40, 3, 32, 32)).astype("uint8")
    images.flags.writeable = False
    return Dataset(images, np.arange(40) % 2, ("cat", "dog"), (0.4, 0.5, 0.6), (0.1, 0.2, 0.3))


@pytest.fixture(scope="module")
def table(dataset):
    return dict(gallery.rows(dataset))


def test_every_augmentation_has_a_row_of_an_image_and_what_it_becomes(table, dataset):
    single = {field.name for field in fields(Augmentation)} - {"policy", "operations", "magnitude", "mix_prob"}
    assert set(table) == single | {"TrivialAugment", "RandAugment"} | {*policy.OPERATIONS} - {"identity"}
    for name, (original, *samples) in table.items():
        assert (original == dataset.images).all((1, 2, 3)).any(), name
        assert len(samples) == 4 and any((image != original).any() for image in samples), name


def test_every_augmentation_and_every_option_is_on_its_page(table):
    page = PAGE.read_text(encoding="utf-8")
    options = [f"--augment.{field.name.replace('_', '-')}" for field in fields(Augmentation)]
    assert [name for name in [*policy.OPERATIONS, *options, "TrivialAugment", "RandAugment"] if name not in page] == []
    assert (PAGE.parent / "figures" / "augmentation.png").exists() and "figures/augmentation.png" in page


def test_it_is_a_picture_of_a_readable_size(dataset, tmp_path):
    gallery.draw(dataset, tmp_path / "gallery.png")
    with Image.open(tmp_path / "gallery.png") as picture:
        picture.load()
        assert picture.format == "PNG" and min(picture.size) > 600
