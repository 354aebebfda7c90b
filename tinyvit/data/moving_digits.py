"""The real digits in motion: the class of a clip is the direction that its digit moves in."""

import numpy as np

from tinyvit.data.dataset import Dataset, Split
from tinyvit.data.digits import digits
from tinyvit.keys import Key

DIRECTIONS = {  # rows down, columns to the right
    "right": (0, 1), "down-right": (1, 1), "down": (1, 0), "down-left": (1, -1),
    "left": (0, -1), "up-left": (-1, -1), "up": (-1, 0), "up-right": (-1, 1),
}  # fmt: skip
SIDE = 16     # pixels; a digit has half as many
FRAMES = 8
SPEEDS = 1, 2  # pixels from a frame to the next


def moving_digits(frames=None):
    """Clips (n, 1, T, 16, 16) of digits that move over a black ground, and come in again on the other side.

    frames   T; by default 8. With one there is no motion in a clip

    Every digit moves in all eight directions, from the same place and with the same speed, both drawn at random. The
    first frames of the eight clips are therefore the same picture, and a later frame shows the digit at a place that is
    equally likely in each class: a single frame tells nothing about the direction. 11,496 clips of the 1,437 digits to
    train on and 2,880 of the 360 to test on, always the same.
    """
    T = FRAMES if frames is None else frames
    parts = {name: clips(part.images, T, name) for name, part in zip(Split._fields, digits())}
    pixels, scale = parts["train"][0], 16.0
    mean = pixels.mean() / scale
    std = ((pixels.astype("float32") / scale - mean) ** 2).mean() ** 0.5
    classes = tuple(DIRECTIONS)
    return Split(*(Dataset(*part, classes, (float(mean),), (float(std),), scale) for part in parts.values()))


def clips(images, frames, name):
    """Clips (n·8, 1, T, 16, 16) of digits (n, 1, 8, 8), those of a digit one after the other, and labels (n·8,).

    name   of the part, "train" or "test": places and speeds are drawn from it
    """
    n, generator = len(images), Key(0).at(f"moving digits {name}").generator()
    starts = generator.integers(SIDE, size=(n, 2))
    speeds = generator.choice(SPEEDS, size=(n, 1))
    found = [shift_digits(images[:, 0], starts, speeds * np.array(step), frames) for step in DIRECTIONS.values()]
    return np.stack(found, axis=1).reshape(-1, 1, frames, SIDE, SIDE), np.tile(np.arange(len(found)), n)


def shift_digits(images, starts, steps, frames):
    """Clips (n, T, 16, 16) of images (n, 8, 8) that are at `starts` (n, 2) in the first frame and move by `steps` (n,
    2) pixels, (rows, columns), to the next. What leaves on one side comes in on the other."""
    ground = np.zeros((len(images), SIDE, SIDE), images.dtype)
    ground[:, : images.shape[1], : images.shape[2]] = images
    places = starts[:, None] + np.arange(frames)[:, None] * steps[:, None]      # (n, T, 2)
    rows, columns = np.moveaxis((np.arange(SIDE) - places[..., None]) % SIDE, 2, 0)  # of each pixel, (n, T, SIDE)
    return ground[np.arange(len(images))[:, None, None, None], rows[..., None], columns[:, :, None]]
