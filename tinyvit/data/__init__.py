"""Data sets, and the loader that turns them into batches."""

from tinyvit.data.cifar import cifar10, cifar100
from tinyvit.data.dataset import Dataset, Split, hold_out
from tinyvit.data.digits import digits
from tinyvit.data.loader import Loader

DATASETS = {"digits": lambda data_dir: digits(), "cifar10": cifar10, "cifar100": cifar100}


def load(name, data_dir=None):
    """A data set by name; raises ValueError for a name that doesn't exist.

    data_dir   where it lies; by default it is looked for in the cache folder, and downloaded if it isn't there
    """
    if name not in DATASETS:
        raise ValueError(f"unknown data set {name!r}; expected one of {', '.join(DATASETS)}")
    return DATASETS[name](data_dir)
