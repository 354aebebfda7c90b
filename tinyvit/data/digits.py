"""1,797 real handwritten digits of 8×8 pixels, which come with scikit-learn: nothing is downloaded."""

from functools import cache

import numpy as np

from tinyvit.data.dataset import Dataset, Split


@cache
def source():
    """Images and labels from scikit-learn, read once in a process."""
    from sklearn.datasets import load_digits

    return load_digits()


def digits():
    """The digits, one in five of each class set aside for the test: 1,437 and 360 images, always the same.

    E. Alpaydin & C. Kaynak, "Optical recognition of handwritten digits", UCI repository, 1998.
    """
    from sklearn.model_selection import train_test_split

    images, labels = source().images.astype("uint8")[:, None], source().target  # (n, 1, 8, 8), 0 to 16
    train, test = train_test_split(np.arange(len(images)), test_size=360, random_state=0, stratify=labels)
    pixels = images[train] / 16
    about = tuple("0123456789"), (float(pixels.mean()),), (float(pixels.std()),)
    return Split(*(Dataset(images[i], labels[i], *about, scale=16.0) for i in (train, test)))
