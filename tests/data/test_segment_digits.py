import numpy as np
import pytest

from tinyvit.data import load, segment_digits
from tinyvit.data.digits import digits
from tinyvit.training.tasks.segmentation import mean_iou


@pytest.fixture(scope="module")
def split():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segment_digits, "COPIES", {"train": 1, "test": 1})
        return load("segment-digits")


def test_a_sixth_of_the_pixels_show_a_digit_and_the_background_alone_has_a_mean_iou_of_0_076(split):
    assert [len(part) for part in split] == [1437, 360] and split.train.classes == ("background", *"0123456789")
    for part in split:
        assert part.images.shape[1:] == (3, 32, 32) and part.labels.shape[1:] == (32, 32)
        confusion = np.zeros((11, 11), int)
        confusion[:, 0] = np.bincount(part.labels.ravel(), minlength=11)
        assert confusion[0, 0] / confusion.sum() == pytest.approx(0.834, abs=2e-3)
        assert mean_iou(confusion) == pytest.approx(0.076, abs=5e-4)


def test_the_labels_of_an_image_are_those_of_its_own_digit_where_that_is_drawn(split):
    for part, drawn in zip(split, digits()):
        for labels, digit, name in zip(part.labels[::50], drawn.images[::50], drawn.labels[::50]):
            assert set(np.unique(labels)) == {0, 1 + name}
            (top, left), light = np.argwhere(labels).min(0), digit[0] > 8
            where = np.argwhere(light).min(0)
            shown = labels[top::3, left::3][: 8 - where[0], : 8 - where[1]] > 0
            np.testing.assert_array_equal(shown, light[where[0] :, where[1] :])


def test_photographs_of_training_and_test_have_no_pixel_in_common():
    train, test = (photographs.args[0] for photographs in segment_digits.photographs_of(None))
    assert train.shape == test.shape == (2, 3, 427, 320) and not np.shares_memory(train, test)


def test_with_a_folder_the_photographs_are_those_of_cifar(monkeypatch, split):
    monkeypatch.setattr(segment_digits, "COPIES", {"train": 1, "test": 1})
    asked = []
    monkeypatch.setattr("tinyvit.data.cifar.cifar", lambda *given: asked.append(given) or split)
    found = load("segment-digits", "somewhere")
    assert asked == [("cifar10", "somewhere")] and found.train.images.shape == split.train.images.shape
    np.testing.assert_array_equal(np.sort(found.test.labels.max((1, 2))), np.sort(split.test.labels.max((1, 2))))
