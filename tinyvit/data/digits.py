"""1,797 real handwritten digits of 8×8 pixels, which come with scikit-learn: nothing is downloaded."""

import numpy as np

from tinyvit.data.dataset import Dataset, Split


def digits():
    """The digits, one in five of each class set aside for the test: 1,437 and 360 images, always the same.

    E. Alpaydin & C. Kaynak, "Optical recognition of handwritten digits", UCI repository, 1998.
    """
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    source = load_digits()
    images = source.images.astype("uint8")[:, None]  # (n, 1, 8, 8), 0 to 16
    rows = np.arange(len(images))
    train, test = train_test_split(rows, test_size=360, random_state=0, stratify=source.target)
    classes = tuple(str(digit) for digit in range(10))
    pixels = images[train] / 16
    mean, std = (float(pixels.mean()),), (float(pixels.std()),)
    return Split(*(Dataset(images[i], source.target[i], classes, mean, std, scale=16.0) for i in (train, test)))
