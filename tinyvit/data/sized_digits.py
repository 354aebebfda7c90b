"""Real digits on photographs of many sizes."""

import numpy as np

from tinyvit.data.dataset import Dataset, Split
from tinyvit.data.digits import digits
from tinyvit.data.folder import statistics
from tinyvit.data.segment_digits import digits_on, photographs_of
from tinyvit.keys import Key

SIDES = range(24, 49, 8)           # pixels that an image is high or wide
COPIES = {"train": 2, "test": 4}  # of each digit, on photographs of their own
STEP = 4                           # pixels from one place of a digit to the next
DIMMED = 4                         # the photographs have a quarter of their light


def sized_digits():
    """The digits of `digits`, 24 pixels high and wide and white, on dimmed photographs of 24 to 48 pixels a side: 2,874
    and 1,440 images of three channels, always the same, in arrays of objects.

    Height and width are drawn each by itself, from multiples of 8, and so is the digit's place, from multiples of 4.
    The photographs are cut out of two that come with scikit-learn, for training of their left halves and for the test
    of the right. Only a model that reads images at their own size sees all digits equally large.
    """
    parts = []
    for name, part, photographs in zip(Split._fields, digits(), photographs_of(None)):
        copies = np.tile(np.arange(len(part)), COPIES[name])
        part = part.subset(copies)
        generator = Key(0).at(f"sized digits {name}").generator()
        drawn = (on_photograph(digit, photographs, generator) for digit in part.images)
        images = np.fromiter(drawn, object, len(part))
        parts.append((images, part.labels))
    about = part.classes, *statistics(parts[0][0])
    return Split(*(Dataset(*part, *about) for part in parts))


def on_photograph(digit, photographs, generator):
    """A digit (1, 8, 8) on a part of a photograph, (3, H, W)."""
    size = generator.choice(SIDES, 2)
    places = (size - min(SIDES)) // STEP + 1
    place = STEP * generator.integers(0, places)
    photograph = photographs(1, generator, tuple(size)) // DIMMED
    images, _ = digits_on(photograph, digit[None], [place], [255])
    return images[0]
