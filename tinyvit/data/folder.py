"""Your own images: a folder with one sub-folder of images per class."""

import hashlib
import os
from pathlib import Path

import numpy as np

from tinyvit.data.dataset import Dataset, Split
from tinyvit.data.images import check_memory, height_width, image_files
from tinyvit.data.videos import read_all, video_files
from tinyvit.files import expand_path

TEST_SHARE = 0.2
FILES_AT_A_TIME = 512
LAYOUT = "one sub-folder of images a class, or such folders under train/ and test/ (or val/)"


def folder(data_dir, img_size, channels=3, frames=None, threads=None, resample="bicubic", crop=1.0):
    """The images under `data_dir`, a class for each sub-folder, made into (channels, *img_size) by `read_image`.

    data_dir   holds the classes' folders, of which one image in five is then set aside for the test; or train/ and
               test/ (or, if that is missing, val/), which hold them
    img_size   (H, W), or the side of a square; or a function of an image's height and width that returns (H, W), such
               as `QwenVisionConfig.nearest_size`: images are then of several sizes, in an array of objects
    channels   1 for grey, 3 for colour
    frames     of videos (channels, frames, *img_size), which are then read in the place of images: see `video_files`
    threads    that read files
    resample   as for `read_image`
    crop       as for `read_image`

    Classes are sorted by name. Files that Pillow doesn't read (by suffix) and names that begin with a dot are left out;
    folders inside a class belong to it. Which images are set aside is decided by a hash of their names: always the
    same ones, and at least one of each class. Mean and std are those of the training images; a channel that is the same
    everywhere gets the std 1. All images are held in memory, at `img_size`, one byte per channel and pixel.

    Raises ValueError for a folder of another layout, a class without enough images, classes that differ between
    training and test, an image that can't be read, and more images than fit into memory.
    """
    if data_dir is None:
        raise ValueError(f"the data set 'folder' needs --data-dir: {LAYOUT}")
    if img_size is None:
        raise ValueError("the data set 'folder' needs an img_size that its images are made into")
    size, channels = img_size if callable(img_size) else height_width(img_size), channels or 3
    root = expand_path(data_dir)
    files = list_files(root, image_files if frames is None else video_files)
    if not callable(size):
        check_memory(sum(len(paths) for part in files for paths in part.values()), channels * (frames or 1), size)
    options = dict(channels=channels, size=size, threads=threads, resample=resample, crop=crop)
    if frames is not None:
        options["frames"] = frames
    train, test = (read_classes(part, **options) for part in files)
    about = tuple(files[0]), *statistics(train[0])
    return Split(Dataset(*train, *about), Dataset(*test, *about))


def list_files(root, find=image_files):
    """The files of each class, of training and test: two dicts from class to paths. `find` lists those of a folder."""
    if not root.is_dir():
        what = "is not a folder" if root.exists() else "doesn't exist"
        raise ValueError(f"{root} {what}; expected a folder with {LAYOUT}")
    names = {path.name for path in subfolders(root)}
    held_out = next((name for name in ("test", "val") if name in names), None)
    if "train" in names and held_out:
        train, test = files_by_class(root / "train", find), files_by_class(root / held_out, find)
        if train.keys() != test.keys():
            different = ", ".join(sorted(train.keys() ^ test.keys()))
            raise ValueError(f"{root} has other classes in train than in {held_out}; only one of them has {different}")
        return train, test
    if names == {"train"}:
        raise ValueError(f"{root} has a folder train, but neither test nor val; add one, or give {root / 'train'}")
    return set_aside(files_by_class(root, find))


def files_by_class(root, find=image_files):
    """The files that `find` lists in every sub-folder, by its name, sorted."""
    # Bytes of a name that aren't UTF-8 are escaped: classes are saved as text, drawn and printed.
    files = {os.fsencode(path.name).decode("utf-8", "backslashreplace"): [*find(path)] for path in subfolders(root)}
    if len(files) < 2:
        found = f"only {next(iter(files))}" if files else "no sub-folder"
        raise ValueError(f"{root} has {found}; expected {LAYOUT}, at least two classes")
    empty = [name for name, paths in files.items() if not paths]
    if empty:
        raise ValueError(f"{root} has classes without an image: {', '.join(empty)}; add images or remove their folders")
    return files


def is_among_images(data_dir, path):
    """Whether a folder at `path` would be taken for a class of those under `data_dir`, or be in one or hold some."""
    root, path = (Path(os.path.realpath(expand_path(place))) for place in (data_dir, path))
    names = {path.name for path in subfolders(root)}
    parts = {"train", "test", "val"} & names
    places = [root / name for name in parts] if "train" in parts and len(parts) > 1 else [root]
    return any(path.is_relative_to(place) for place in places)


def subfolders(root):
    return sorted(path for path in root.iterdir() if path.is_dir() and not path.name.startswith("."))


def set_aside(files):
    """Files by class, split in two: TEST_SHARE of each class is for the test, at least one image.

    An image that is added later may join either part, but moves few others between them.
    """
    train, test = {}, {}
    for name, paths in files.items():
        if len(paths) < 2:
            raise ValueError(f"class {name} has a single image, {paths[0]}; training and test need at least one each")
        count = max(1, round(TEST_SHARE * len(paths)))
        chosen = set(sorted(paths, key=lambda path: hashlib.blake2b(os.fsencode(path.name)).digest())[:count])
        train[name], test[name] = [p for p in paths if p not in chosen], [p for p in paths if p in chosen]
    return train, test


def read_classes(files, **options):
    """Images and labels (n,) of files by class, by `read_all`; the first file that can't be read is raised."""
    paths = [path for paths in files.values() for path in paths]
    labels = np.repeat(np.arange(len(files)), [len(paths) for paths in files.values()])
    images = None
    for first in range(0, len(paths), FILES_AT_A_TIME):
        for row, image in enumerate(read_all(paths[first : first + FILES_AT_A_TIME], **options), first):
            if isinstance(image, ValueError):
                raise image
            if images is None and callable(options["size"]):
                images = np.empty(len(paths), object)
            elif images is None:
                images = np.empty((len(paths), *image.shape), "uint8")
            images[row] = image
    return images, labels


def statistics(images):
    """Mean and std of each channel of uint8 images (n, C, …), as a fraction of 255; a std of 0 becomes 1."""
    if images.ndim == 1:  # of several sizes
        images = np.concatenate([image.reshape(len(image), -1) for image in images], axis=1)[None]
    levels = np.arange(256) / 255
    found = []
    for channel in range(images.shape[1]):
        # Counting the levels needs no copy of the images in floating point.
        counts = sum(np.bincount(chunk.ravel(), minlength=256) for chunk in np.array_split(images[:, channel], 64))
        share = counts / counts.sum()
        mean = float(share @ levels)
        found.append((mean, float((share @ (levels - mean) ** 2) ** 0.5) if (counts > 0).sum() > 1 else 1.0))
    return tuple(zip(*found))
