import numpy as np

from tinyvit.data import load, sized_digits
from tinyvit.data.digits import digits


def test_each_image_has_a_size_of_its_own_and_its_digit_in_white(monkeypatch):
    monkeypatch.setattr(sized_digits, "COPIES", {"train": 1, "test": 1})
    for part, drawn in zip(load("sized-digits"), digits()):
        assert {side for image in part.images for side in image.shape[1:]} == {24, 32, 40, 48}
        np.testing.assert_array_equal(part.labels, drawn.labels)
        for image, digit in zip(part.images[::50], drawn.images[::50]):
            assert image.dtype == "uint8" and (image == 255).all(0).sum() == 9 * (digit == 16).sum()
