"""Images with labels."""

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np

from tinyvit.arrays import IGNORED, each_image
from tinyvit.backend import constant, device_of
from tinyvit.keys import Key
from tinyvit.text import did_you_mean
from tinyvit.validation import require

# How images are resized, in the order of Pillow's numbers.
Resample = Literal["nearest", "lanczos", "bilinear", "bicubic", "box", "hamming"]


@dataclass(frozen=True)
class Dataset:
    """Images (n, C, H, W), or videos (n, C, T, H, W), with labels (n,) from 0 to K−1, or one for each pixel, (n, H, W),
    which may be `IGNORED`, too.

    Images of several sizes are an array of objects (n,), each of them an array (C, H, W).

    scale      what a fully lit pixel is in `images`: 255 for bytes
    mean, std  of each channel, as a fraction of `scale`

    Raises ValueError if it is empty, if shapes or labels don't fit, or if a pixel is not a finite number: this is
    checked here, once, and not in every step.
    """

    images: np.ndarray
    labels: np.ndarray
    classes: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    scale: float = 255.0

    def __post_init__(self):
        images, labels, K = self.images, self.labels, len(self.classes)
        if images.dtype.kind == "O" and len(images):
            images = images[0][None]
        require(images.ndim in (4, 5) and len(images), "expected images (n, C, H, W) with n at least 1", images.shape)
        count, of_pixels = self.images.shape[:1], self.images.shape[:1] + images.shape[2:]
        whole = labels.shape in (count, of_pixels) and labels.dtype.kind in "iu"
        require(whole, f"expected integer labels {count} or {of_pixels}", f"{labels.dtype} {labels.shape}")
        known = labels if labels.ndim == 1 else np.where(labels == IGNORED, 0, labels)
        least, most = known.min(), known.max()
        require(least >= 0 and most < K, f"expected labels from 0 to {K - 1}", f"{least} to {most}")
        require(images.dtype.kind in "uif", "expected pixels as real numbers", images.dtype)
        if images.dtype.kind == "f" and not np.isfinite(images).all():
            raise ValueError("there are pixels that are NaN or infinite")
        fits = len(self.mean) == len(self.std) == images.shape[1]
        require(fits, f"expected a mean and a std for each of {images.shape[1]} channels", (self.mean, self.std))
        positive = self.scale > 0 and all(std > 0 for std in self.std)
        require(positive, "expected a positive scale and stds", (self.scale, self.std))

    def __len__(self):
        return len(self.images)

    @property
    def strata(self):
        """(n,) of which images are chosen evenly: their labels; all alike where each pixel has one."""
        return self.labels if self.labels.ndim == 1 else np.zeros(len(self), int)

    def subset(self, rows):
        """The images of these rows, in their order."""
        return replace(self, images=self.images[rows], labels=self.labels[rows])

    def normalise(self, images, dtype="float32"):
        """Pixels as the model sees them: (images/scale − mean) / std, channel by channel."""
        return normalise(images, self.mean, self.std, self.scale, dtype)


class Split(NamedTuple):
    """The images to train on, and those to evaluate on."""

    train: Dataset
    test: Dataset


def normalise(images, mean, std, scale, dtype="float32"):
    """(images/scale − mean) / std of images (B, C, …), with one mean and std per channel."""
    if images.dtype.kind == "O":
        return each_image(lambda image: normalise(image, mean, std, scale, dtype), images)
    pixels = images.astype(dtype)  # a copy, which the rest may overwrite
    axes = images.ndim - 2
    factor, shift = factor_and_shift(tuple(mean), tuple(std), scale, pixels.dtype, device_of(images), axes)
    pixels *= factor
    pixels -= shift
    return pixels


@lru_cache(maxsize=32)
def factor_and_shift(mean, std, scale, dtype, device, axes=2):
    """1/(scale·std) and mean/std, (C, 1, 1) each, with as many `axes` after the channels, kept on a device."""
    mean, std = (np.array(x, dtype).reshape(-1, *(1,) * axes) for x in (mean, std))
    return constant(1 / (scale * std), device, dtype), constant(mean / std, device, dtype)


def hold_out(split, share, seed=0):
    """A Split whose test is a share of the training images, for choices that must not use the real test.

    Of each class it takes the same share, rounded to whole images, which depend on the seed alone. Raises ValueError
    if a class would be left without training or without test images.
    """
    require(0 < share < 1, "expected a share between 0 and 1", share)
    labels = split.train.strata
    generator = Key(seed).at("hold out").generator()
    held = np.zeros(len(labels), bool)
    for label in np.unique(labels):
        rows = generator.permutation(np.flatnonzero(labels == label))
        taken = round(share * len(rows))
        of_class = f"of the {len(rows)} images of class {split.train.classes[label]}"
        require(0 < taken < len(rows), f"expected a share {of_class} that leaves some to train and test on", share)
        held[rows[:taken]] = True
    return Split(split.train.subset(np.flatnonzero(~held)), split.train.subset(np.flatnonzero(held)))


def choose(split, classes=None, images=None, seed=0):
    """A Split of some classes, and of `images` training images, equally many of each class that has any.

    classes  names; labels become their places in this order. None leaves all
    images   how many to train on. Which ones depends on the seed, and for each class on its name alone; a larger number
             adds to those of a smaller one. They stay in their order. None leaves all

    The test has all images of the chosen classes. Mean and std stay the data set's.

    Raises ValueError for fewer than two classes, for an unknown or repeated one, and for a number of images that is no
    multiple of the number of classes, or that a class doesn't have.
    """
    if classes is not None:
        require(split.train.labels.ndim == 1, "some of the classes can be chosen of images, not of pixels", classes)
        numbers = class_numbers(split.train.classes, classes)
        split = Split(*(of_classes(dataset, numbers) for dataset in split))
    if images is not None:
        split = Split(split.train.subset(rows_of_each_class(split.train, images, seed)), split.test)
    return split


def class_numbers(known, names):
    """The labels of classes by name; ValueError if a name isn't known, or comes twice, or there is only one."""
    if len(names) < 2:
        raise ValueError(f"expected at least two classes, got {', '.join(names) or 'none'}")
    for name in names:
        if name not in known:
            raise ValueError(f"the data set has no class {name!r}; {did_you_mean(name, known)}")
        if names.count(name) > 1:
            raise ValueError(f"expected each class once, got {name} {names.count(name)} times")
    return [known.index(name) for name in names]


def of_classes(dataset, numbers):
    """The images of some labels, which become 0, 1, … in this order."""
    renumbered = np.full(len(dataset.classes), -1)
    renumbered[numbers] = np.arange(len(numbers))
    labels = renumbered[dataset.labels]
    rows = np.flatnonzero(labels >= 0)
    classes = tuple(dataset.classes[number] for number in numbers)
    return replace(dataset, images=dataset.images[rows], labels=labels[rows], classes=classes)


def rows_of_each_class(dataset, images, seed):
    """The rows, in order, of `images` images, equally many of each class that has any."""
    strata = dataset.strata
    labels = np.unique(strata)
    K = len(labels)
    each, rest = divmod(images, K)
    expected = f"expected equally many images of each of {K} classes, such as {K * max(1, round(images / K))} in all"
    require(images >= 1 and not rest, expected, images)
    chosen = []
    for label in labels:
        name, rows = dataset.classes[label], np.flatnonzero(strata == label)
        most = f"expected at most {len(rows)} images of each class, as many as class {name} has"
        require(len(rows) >= each, most, each)
        chosen.append(Key(seed).at(f"choose.{name}").generator().permutation(rows)[:each])
    return np.sort(np.concatenate(chosen))
