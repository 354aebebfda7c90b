import numpy as np
import pytest
from sklearn.linear_model import RidgeClassifier

from tinyvit import data
from tinyvit.data.moving_digits import DIRECTIONS


@pytest.fixture(scope="module")
def split():
    return data.load("moving-digits")


def by_direction(part):
    """Clips (n, 8, T, 16, 16), one of each direction for each digit."""
    return part.images.reshape(-1, 8, *part.images.shape[2:])


def test_each_digit_moves_in_all_directions(split):
    for part, count in zip(split, (1437, 360)):
        assert part.images.shape == (8 * count, 1, 8, 16, 16) and part.classes == tuple(DIRECTIONS)
        np.testing.assert_array_equal(part.labels, np.tile(np.arange(8), count))


def test_the_first_frames_of_the_eight_clips_are_the_same_picture(split):
    """So whatever is read off a first frame is right for one clip in eight, exactly."""
    for part in split:
        first = by_direction(part)[:, :, 0]
        np.testing.assert_array_equal(first, np.broadcast_to(first[:, :1], first.shape))


def test_every_frame_shows_the_whole_digit(split):
    digits = data.digits()
    for part, source in zip(split, digits):
        shown = np.sort(by_direction(part).reshape(len(source), 64, -1), axis=-1)[..., -64:]
        expected = np.sort(source.images.reshape(len(source), 1, -1), axis=-1)
        np.testing.assert_array_equal(shown, np.broadcast_to(expected, shown.shape))


def test_a_classifier_of_single_frames_is_at_chance(split):
    train, test = (part.images[:, 0, 5].reshape(len(part), -1) / 16 for part in split)
    classifier = RidgeClassifier().fit(train[:4000], split.train.labels[:4000])
    assert abs(classifier.score(test, split.test.labels) - 1 / 8) < 0.03        # 5 standard deviations of 2,880 guesses


def test_it_is_always_the_same_and_has_as_many_frames_as_asked_for(split):
    short = data.load("moving-digits", frames=3)
    for part, again in zip(split, short):
        np.testing.assert_array_equal(part.images[:, :, :3], again.images)
    pixels = split.train.normalise(split.train.images[:2000], "float64")
    assert abs(pixels.mean()) < 0.05 and abs(pixels.var() - 1) < 0.05
