import numpy as np
import pytest
from sklearn.linear_model import RidgeClassifier

from tinyvit import data
from tinyvit.data.moving_digits import DIRECTIONS, SIDE, moved


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


def test_a_clip_backwards_shows_the_opposite_direction(split):
    clips = by_direction(split.test)
    turn = np.array(list(DIRECTIONS.values()))
    opposite = [int(np.flatnonzero((turn == -step).all(1))[0]) for step in turn]
    images, generator = data.digits().test.images[:20, 0], np.random.default_rng(0)
    starts, speed = generator.integers(SIDE, size=(20, 2)), generator.integers(1, 3, (20, 1))
    for label, step in enumerate(turn):
        there = moved(images, starts, speed * step, 8)
        back = moved(images, starts + 7 * speed * step, speed * turn[opposite[label]], 8)
        np.testing.assert_array_equal(there[:, ::-1], back)
    assert clips.shape[1] == len(opposite)


@pytest.mark.parametrize("frame", [3, 7])
def test_of_a_later_frame_places_are_equally_frequent_in_all_directions(split, frame):
    """The row and the column of each digit's frame: 1,437 of each class, about 90 in each of 16 places."""
    clips = by_direction(split.train)[:, :, frame]
    for axis in (2, 3):
        profile = np.fft.fft(clips.sum(axis, dtype="float64"))[..., 1]          # its phase turns with the place
        still = np.fft.fft(by_direction(split.train)[:, :, 0].sum(axis, dtype="float64"))[..., 1]
        places = np.round(np.angle(still * np.conj(profile)) * SIDE / (2 * np.pi)).astype(int) % SIDE
        for label, step in enumerate(DIRECTIONS.values()):
            pixels = step[1] if axis == 2 else step[0]
            assert set(np.unique(places[:, label])) <= {(frame * speed * pixels) % SIDE for speed in (1, 2)}
        brightness = clips.sum((0, axis), dtype="float64")                      # (8, 16): where the digits are
        assert (abs(brightness / brightness.mean() - 1) < 0.2).all()


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


def test_a_folder_for_it_is_refused():
    with pytest.raises(ValueError, match="moving-digits are built in; leave out --data-dir, got x"):
        data.load("moving-digits", "x")
