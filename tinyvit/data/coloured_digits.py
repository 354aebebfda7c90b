"""The real digits in colour, on the left, in the middle or on the right of a larger image, with a caption each."""

import numpy as np

from tinyvit.data.dataset import Dataset, Split
from tinyvit.data.digits import digits
from tinyvit.keys import Key

COLOURS = {"red": (225, 40, 40), "green": (40, 185, 60), "blue": (50, 80, 240), "yellow": (240, 220, 50),
           "purple": (190, 60, 220), "white": (245, 245, 245)}  # fmt: skip
WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
PLACES = ("on the left", "in the middle", "on the right")
SIDE, STEP = 16, 4  # pixels of an image; between neighbouring places, beside and below each other
COPIES = 8             # of each training digit, drawn anew
MIN_BRIGHTNESS = 0.75  # of a colour's brightness
NOISE = 10             # largest difference of a pixel from its background, of 255


def coloured_digits():
    """The digits of `digits`, coloured and placed, always the same: 11,496 and 2,160 images of 3×16×16.

    A class is a caption without its article, such as "red seven on the left": six colours, ten digits, three places
    beside each other; how high it stands no caption says.
    Ten of the 60 pairs of a colour and a digit are held out: no training image shows them, though each shows a colour
    and a digit of theirs. The test shows each of its 360 digits in each colour, so a sixth of it is of those pairs.
    """
    train, test = digits()
    generator = Key(0).at("coloured digits").generator()
    train = train.subset(np.tile(np.arange(len(train)), COPIES))
    # Of the five colours that a digit may have in training, counted from the one that is held out.
    colours = (held_out(train.labels) + generator.integers(1, len(COLOURS), len(train))) % len(COLOURS)
    every = np.repeat(np.arange(len(COLOURS)), len(test))
    test = test.subset(np.tile(np.arange(len(test)), len(COLOURS)))
    parts = [scenes(part, colour, generator) for part, colour in ((train, colours), (test, every))]
    pixels = parts[0][0] / 255
    mean, std = (tuple(f((0, 2, 3)).tolist()) for f in (pixels.mean, pixels.std))
    return Split(*(Dataset(images, labels, captions(), mean, std) for images, labels in parts))


def held_out(digits):
    """The number of the colour that these digits have in no training image."""
    return digits % len(COLOURS)


def captions():
    """The names of all classes: colour by colour, in each digit by digit, in each place by place."""
    return tuple(f"{colour} {word} {place}" for colour in COLOURS for word in WORDS for place in PLACES)


def scenes(dataset, colours, generator):
    """(images, labels) of a data set of digits, each in the colour of that number and in a random place."""
    n, (_, _, height, width) = len(dataset), dataset.images.shape
    places = generator.integers(0, len(PLACES), n)
    left, top = STEP * places, STEP * generator.integers(0, (SIDE - height) // STEP + 1, n)
    ink = np.zeros((n, SIDE, SIDE))
    rows, columns = top[:, None, None] + np.arange(height)[:, None], left[:, None, None] + np.arange(width)
    ink[np.arange(n)[:, None, None], rows, columns] = dataset.images[:, 0] / dataset.scale
    brightness = generator.uniform(MIN_BRIGHTNESS, 1, (n, 1))
    colour = np.array(list(COLOURS.values()))[colours] * brightness                 # (n, 3)
    ground = generator.uniform(0, 70, (n, 1, 1, 1)) + generator.uniform(-NOISE, NOISE, (n, 3, SIDE, SIDE))
    images = ground + ink[:, None] * (colour[:, :, None, None] - ground)
    labels = (colours * len(WORDS) + dataset.labels) * len(PLACES) + places
    return images.clip(0, 255).round().astype("uint8"), labels
