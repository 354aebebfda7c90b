"""The digits in colour, with captions."""

import numpy as np
import pytest

from tinyvit.data import digits, load
from tinyvit.data.coloured_digits import COLOURS, PLACES, STEP, WORDS, held_out


@pytest.fixture(scope="module")
def split():
    return load("coloured-digits")


def parts(labels):
    """(colour, digit, place) of labels, as numbers."""
    pair, place = np.divmod(labels, len(PLACES))
    return *np.divmod(pair, len(WORDS)), place


def test_it_is_always_the_same(split):
    for one, again in zip(split, load("coloured-digits")):
        np.testing.assert_array_equal(one.images, again.images)
        np.testing.assert_array_equal(one.labels, again.labels)
    assert split.train.images.shape == (11496, 3, 16, 16) and split.test.images.shape == (2160, 3, 16, 16)


def test_the_names_of_classes_are_captions(split):
    assert split.train.classes[0] == "red zero on the left" and split.train.classes[-1] == "white nine on the right"
    for label in (0, 1, 37, 179):
        colour, digit, place = (int(part) for part in parts(label))
        assert split.train.classes[label] == f"{list(COLOURS)[colour]} {WORDS[digit]} {PLACES[place]}"


def test_ten_of_sixty_pairs_are_in_no_training_image_and_all_their_colours_digits_and_places_are(split):
    seen = {pair: set(zip(*parts(dataset.labels))) for pair, dataset in zip(("train", "test"), split)}
    pairs = {name: {(int(colour), int(digit)) for colour, digit, _ in found} for name, found in seen.items()}
    assert len(pairs["test"]) == 60 and len(pairs["train"]) == 50
    assert pairs["test"] - pairs["train"] == {(int(held_out(digit)), digit) for digit in range(10)}
    assert {colour for colour, _ in pairs["train"]} == set(range(6))
    assert {digit for _, digit in pairs["train"]} == set(range(10))
    unseen = ~np.isin(split.test.labels, split.train.labels)
    assert unseen.sum() == len(split.test) / 6


def test_what_an_image_shows_is_what_its_caption_says(split):
    train = digits().train
    colours = np.array(list(COLOURS.values())) / 255
    colour, digit, place = parts(split.train.labels)
    np.testing.assert_array_equal(digit, np.tile(train.labels, len(digit) // len(train)))
    for n in range(0, len(digit), 97):
        image, ink = split.train.images[n] / 255, train.images[n % len(train), 0] / 16
        brightest = image.transpose(1, 2, 0)[image.sum(0) == image.sum(0).max()][0]
        cosines = colours @ brightest / np.linalg.norm(colours, axis=1) / np.linalg.norm(brightest)
        assert cosines.argmax() == colour[n]
        columns = image.max(0).max(0)
        left = STEP * place[n]
        assert np.r_[columns[:left], columns[left + 8 :]].max() < 0.35 < columns.max()
        rows = [image[:, top : top + 8, left : left + 8].max(0) for top in (0, STEP, 2 * STEP)]
        assert max(np.corrcoef(row.ravel(), ink.ravel())[0, 1] for row in rows) > 0.9
