"""Real digits on photographs, with a label for each pixel."""

from functools import partial

import numpy as np

from tinyvit.data.dataset import Dataset, Split
from tinyvit.data.digits import digits
from tinyvit.data.folder import statistics
from tinyvit.keys import Key

SIDE, ENLARGED = 32, 3  # pixels of an image; as often is a digit's pixel repeated, downwards and across
COPIES = {"train": 8, "test": 4}  # of each digit, on photographs of their own
CLASSES = ("background", *"0123456789")


def segment_digits(data_dir=None):
    """The digits of `digits`, enlarged threefold, on photographs: 11,496 and 1,440 images of 3×32×32, always the same.

    data_dir   a folder with CIFAR-10, whose training and test images are then the photographs; by default they are cut
               out of two that come with scikit-learn, for training of their left halves and for the test of the right

    Each digit is laid over its photograph in one of eight colours. A pixel that it covers by more than half has its
    class; all others, five in six, are background.
    """
    parts = []
    for name, part, photographs in zip(Split._fields, digits(), photographs_of(data_dir)):
        part = part.subset(np.tile(np.arange(len(part)), COPIES[name]))
        generator, count = Key(0).at(f"segment digits {name}").generator(), len(part)
        ground = photographs(count, generator)
        places = generator.integers(0, SIDE - ENLARGED * part.images.shape[2] + 1, (count, 2))
        colours = 255 * generator.integers(0, 2, (count, 3, 1, 1))
        images, masks = digits_on(ground, part.images, places, colours)
        labels = np.where(masks, 1 + part.labels[:, None, None], 0)
        parts.append((images, labels.astype("uint8")))
    about = statistics(parts[0][0])
    return Split(*(Dataset(*part, CLASSES, *about) for part in parts))


def photographs_of(data_dir):
    """Two functions (count, generator) -> photographs (count, 3, 32, 32): of training and of test."""
    if data_dir is not None:
        from tinyvit.data.cifar import cifar

        return [partial(chosen, part.images) for part in cifar("cifar10", data_dir)]
    from sklearn.datasets import load_sample_images

    scenes = np.stack(load_sample_images().images).transpose(0, 3, 1, 2)       # (2, 3, 427, 640)
    middle = scenes.shape[3] // 2
    return [partial(crops, half) for half in (scenes[..., :middle], scenes[..., middle:])]


def chosen(images, count, generator):
    """Some of the images, none of them twice if there are enough."""
    return images[generator.choice(len(images), count, replace=count > len(images))]


def crops(scenes, count, generator, size=(SIDE, SIDE)):
    """Parts (count, 3, h, w) of photographs (n, 3, H, W), of one size, anywhere in them."""
    windows = np.lib.stride_tricks.sliding_window_view(scenes, size, (2, 3))  # (n, 3, H−h+1, W−w+1, h, w)
    n, _, *last = windows.shape[:4]
    places = generator.integers(0, (n, *last), (count, 3))
    return windows[places[:, 0], :, places[:, 1], places[:, 2]]


def digits_on(photographs, drawn, places, colours):
    """Photographs (n, 3, H, W), levels from 0 to 255, with a digit on each, and the digits' masks (n, H, W).

    The digits are (n, 1, 8, 8), levels from 0 to 16; each has its place (n, 2), row and column of its upper left
    corner, and its colour (n, 3, 1, 1).
    """
    images, masks = photographs.astype("float32"), np.zeros((len(drawn), *photographs.shape[2:]), bool)
    side = ENLARGED * drawn.shape[2]
    light = drawn[:, 0].repeat(ENLARGED, 1).repeat(ENLARGED, 2) / 16
    for image, mask, digit, (top, left), colour in zip(images, masks, light, places, colours):
        where = slice(top, top + side), slice(left, left + side)
        image[:, *where] += (colour - image[:, *where]) * digit
        mask[where] = digit > 0.5
    return images.round().astype("uint8"), masks
