import numpy as np
import pytest
from hypothesis import given
from PIL import Image
from strategies import seeds

from tinyvit import Key
from tinyvit.data import Dataset
from tinyvit.data.folder import folder
from tinyvit.data.packing import packed_batches
from tinyvit.models import QwenVisionConfig


@given(seed=seeds())
def test_rows_hold_every_image_once_and_no_more_tokens_than_asked_for(seed):
    generator = np.random.default_rng(seed)
    images = [np.full((3, *4 * generator.integers(1, 5, 2)), i, "uint8") for i in range(generator.integers(1, 10))]
    labels, most = np.arange(len(images)), generator.integers(64, 99)
    dataset = Dataset(np.fromiter(images, object, len(labels)), labels, tuple(map(str, labels)), (0.5,) * 3, (0.2,) * 3)
    batches = [*packed_batches(dataset, 2, most, Key(seed))]
    assert sorted(label for batch in batches for label in batch.targets) == [*labels]
    for batch in batches:
        assert sum(image[0].size // 4 for image in batch.images) <= most
        for image, label in zip(batch.images, batch.targets, strict=True):
            np.testing.assert_array_equal(image, dataset.normalise(images[label][None])[0])
    with pytest.raises(ValueError, match=r"has \d+ patches, and a row at most 3"):
        next(packed_batches(dataset, 2, 3))


def test_images_of_a_folder_keep_their_sizes_up_to_the_nearest_units(tmp_path):
    for name, size in (("cat/a", (8, 9)), ("cat/b", (30, 20)), ("dog/a", (3, 11)), ("dog/b", (12, 13))):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        Image.new("RGB", size, (255, 0, 51)).save(tmp_path / f"{name}.png")
    split = folder(tmp_path, QwenVisionConfig().nearest_size, crop=None)
    assert {image.shape for part in split for image in part.images} == {(3, 8, 8), (3, 16, 32), (3, 16, 16)}
    assert split.train.mean == (1.0, 0.0, 0.2) and split.train.std == (1.0, 1.0, 1.0)
