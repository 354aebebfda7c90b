import numpy as np
import pytest
from sklearn.datasets import load_digits

from tinyvit import data


@pytest.fixture(scope="module")
def split():
    return data.digits()


def rows(*datasets):
    """Label and pixels of every image as one row, sorted, so that the order doesn't matter."""
    table = np.concatenate([np.c_[d.labels, d.images.reshape(len(d), -1)] for d in datasets])
    return table[np.lexsort(table.T)]


def test_every_digit_of_the_source_is_in_one_of_the_two_parts_once(split):
    source = load_digits()
    everything = np.c_[source.target, source.data]
    np.testing.assert_array_equal(rows(*split), everything[np.lexsort(everything.T)])
    assert (len(split.train), len(split.test)) == (1437, 360)


def test_one_in_five_of_each_class_is_set_aside(split):
    in_test, in_train = (np.bincount(part.labels, minlength=10) for part in (split.test, split.train))
    assert (abs(in_test - (in_test + in_train) / 5) < 1).all()


def test_training_pixels_have_mean_0_and_variance_1(split):
    pixels = split.train.normalise(split.train.images, "float64")
    assert abs(pixels.mean()) < 1e-12 and abs(pixels.var() - 1) < 1e-12
