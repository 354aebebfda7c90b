"""Data sets, and the loader that turns them into batches."""

from tinyvit.data.augment import Augmentation
from tinyvit.data.cifar import cifar10, cifar100
from tinyvit.data.dataset import Dataset, Split, hold_out
from tinyvit.data.digits import digits
from tinyvit.data.folder import folder
from tinyvit.data.images import image_files, read_image, read_images
from tinyvit.data.loader import Loader

DATASETS = {"digits": digits, "cifar10": cifar10, "cifar100": cifar100, "folder": folder}


def load(name, data_dir=None, img_size=None, channels=None):
    """A data set by name; raises ValueError for a name that doesn't exist, and for digits that are to lie somewhere.

    data_dir             where it lies; by default CIFAR is looked for in the cache folder, and downloaded if it isn't
                         there
    img_size, channels   what images of a `folder` are made into; the other data sets have their own
    """
    if name not in DATASETS:
        raise ValueError(f"unknown data set {name!r}; expected one of {', '.join(DATASETS)}")
    if name == "digits":
        if data_dir is not None:
            raise ValueError(f"digits are built in; leave out --data-dir, got {data_dir}")
        return digits()
    shape = (img_size, channels) if name == "folder" else ()
    return DATASETS[name](data_dir, *shape)
