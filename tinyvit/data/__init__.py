"""Data sets, and the loader that turns them into batches."""

from importlib import import_module

from tinyvit.data.augment import Augmentation
from tinyvit.data.dataset import Dataset, Split, choose, hold_out
from tinyvit.data.digits import digits
from tinyvit.data.loader import Loader
from tinyvit.data.resize import resize_dataset
from tinyvit.registry import look_up

DATASETS = {  # name: the file here that is imported for it, and its function of that name
    "digits": "digits", "moving-digits": "moving_digits", "coloured-digits": "coloured_digits", "cifar10": "cifar",
    "cifar100": "cifar", "folder": "folder", "segment-digits": "segment_digits",
    "sized-digits": "sized_digits",
}  # fmt: skip
BUILT_IN = ("digits", "moving-digits", "coloured-digits", "segment-digits", "sized-digits")


def load(name, data_dir=None, img_size=None, channels=None, frames=None, *, resample="bicubic", crop=1.0,
         masks=False):  # fmt: skip
    """A data set by name; raises ValueError for an unknown name, and for one that is built in with a data_dir.

    data_dir             its folder; by default CIFAR is looked for in the cache folder, and downloaded if it isn't
                         there. Of segment-digits the one with CIFAR-10, whose images it then takes as photographs
    img_size, channels   the size (or the function that says it, see `folder`) and channels that images of a `folder`
                         get; the other data sets have their own
    frames               of the videos of a `folder` or of moving-digits; None for a folder of images
    resample, crop       how, as for `read_image`
    masks                whether each image of a `folder` has a mask: a label for each of its pixels
    """
    file = look_up(DATASETS, name, "data set")
    if name in BUILT_IN and name != "segment-digits" and data_dir is not None:
        raise ValueError(f"{name} are built in; leave out --data-dir, got {data_dir}")
    make = getattr(import_module(f"tinyvit.data.{file}"), file)
    if masks and name == "folder":
        from tinyvit.data.masks import masked_folder

        return masked_folder(data_dir, img_size, channels, resample, crop)
    if name == "folder":
        return make(data_dir, img_size, channels, frames, resample=resample, crop=crop)
    if name == "moving-digits":
        return make(frames)
    if name == "segment-digits":
        return make(data_dir)
    return make() if name in BUILT_IN else make(name, data_dir)
