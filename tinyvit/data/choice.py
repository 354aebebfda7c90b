"""Part of a data set: some of its classes, some of its training images."""

from dataclasses import replace

import numpy as np

from tinyvit.data.dataset import Split
from tinyvit.keys import Key
from tinyvit.text import did_you_mean
from tinyvit.validation import require


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
    labels = np.unique(dataset.labels)
    K = len(labels)
    each, rest = divmod(images, K)
    expected = f"expected equally many images of each of {K} classes, such as {K * max(1, round(images / K))} in all"
    require(images >= 1 and not rest, expected, images)
    chosen = []
    for label in labels:
        name, rows = dataset.classes[label], np.flatnonzero(dataset.labels == label)
        most = f"expected at most {len(rows)} images of each class, as many as class {name} has"
        require(len(rows) >= each, most, each)
        chosen.append(Key(seed).at(f"choose.{name}").generator().permutation(rows)[:each])
    return np.sort(np.concatenate(chosen))
