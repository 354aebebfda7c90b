"""Your own images with a mask each: an image of the same name whose pixels are numbers of classes."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np

from tinyvit.arrays import IGNORED
from tinyvit.data.dataset import Dataset, Split
from tinyvit.data.folder import set_aside, statistics
from tinyvit.data.images import (
    MAX_THREADS,
    check_memory,
    fit_image,
    height_width,
    image_files,
    read_opened,
    resize_image,
    upright,
)
from tinyvit.files import expand_path, read_text

LAYOUT = "folders images/ and masks/ with files of the same names, or such folders in train/ and test/ (or val/)"
NAMES = "classes.txt"  # a class's name in each line; without this file they are called by their numbers


def masked_folder(data_dir, img_size, channels=3, resample="bicubic", crop=1.0):
    """The images under `data_dir`, made into (channels, *img_size) by `read_image`, with labels (n, *img_size).

    data_dir   holds `LAYOUT`. Without train/, one image in five is set aside for the test, as `folder` does it

    A mask is an image with one channel, such as a grey or a palette PNG: its pixels are class numbers from 0, or 255,
    which is ignored. It is resized and cut like its image, each pixel taking the nearest label.

    Without a file NAMES the classes are the labels of the masks for training. Raises ValueError for a folder of another
    layout, an image without a mask, a mask of another size or with a label beyond the classes, masks of a single class,
    and a file that can't be read.
    """
    if data_dir is None:
        raise ValueError(f"the data set 'folder' needs --data-dir: {LAYOUT}")
    root, size = expand_path(data_dir), height_width(img_size)
    held_out = next((name for name in ("test", "val") if (root / name).is_dir()), None)
    if held_out:
        parts = [pairs_of(root / name) for name in ("train", held_out)]
    else:
        pairs = pairs_of(root)
        chosen = set_aside({"images": list(pairs)})
        parts = [{path: pairs[path] for path in part["images"]} for part in chosen]
    check_memory(sum(map(len, parts)), channels + 1, size)
    names = names_in(root / NAMES)
    read = partial(read_pair, len(names) or IGNORED, channels, size, resample, crop)
    with ThreadPoolExecutor(MAX_THREADS) as pool:
        found = [zip(*pool.map(read, part, part.values())) for part in parts]
    train, test = ([np.stack(arrays) for arrays in part] for part in found)
    if not names:
        most, beyond = (labels[labels != IGNORED].max(initial=0) for _, labels in (train, test))
        if not most:
            raise ValueError(
                f"expected masks with numbers of at least two classes, from 0 on, got no label but 0, and "
                f"{IGNORED}, which is ignored"
            )
        if beyond > most:
            raise ValueError(
                f"a mask of the test has the label {beyond}, and those for training {most} at most; name "
                f"the classes in {NAMES}, or mend the mask"
            )
        names = tuple(map(str, range(most + 1)))
    about = names, *statistics(train[0])
    return Split(Dataset(*train, *about), Dataset(*test, *about))


def pairs_of(root):
    """The mask of each image in a folder that holds images/ and masks/, by the image's path."""
    images, masks = root / "images", root / "masks"
    paths = image_files(images) if images.is_dir() and masks.is_dir() else []
    if not paths:
        raise ValueError(f"{root} holds no images with masks; expected {LAYOUT}")
    known = {path.relative_to(masks).with_suffix(""): path for path in image_files(masks)}
    pairs = {path: known.get(path.relative_to(images).with_suffix("")) for path in paths}
    for path, mask in pairs.items():
        if mask is None:
            raise ValueError(f"{path} has no mask; expected one of the same name in {masks}")
    return pairs


def names_in(path):
    """The names of the classes in a file, a line each; () without one."""
    lines = read_text(path).splitlines() if path.is_file() else []
    return tuple(line.strip() for line in lines if line.strip())


def read_pair(count, channels, size, resample, crop, image_path, mask_path):
    """An image as uint8 (C, H, W) and its mask as uint8 (H, W); `count` is the number of classes."""

    def pixels(image):
        image = upright(image)
        return image.size, fit_image(image, channels, size, resample, crop)

    def labels(mask):
        if mask.format == "JPEG":
            raise ValueError("JPEG changes numbers of classes a little; save masks as PNG")
        if mask.mode not in ("1", "L", "P"):
            raise ValueError(f"expected one channel of class numbers up to 255, got the mode {mask.mode}")
        if mask.size != image_size:
            sides = " and ".join(f"{height}×{width}" for width, height in (mask.size, image_size))
            raise ValueError(f"expected the size of its image {image_path.name}, got {sides} pixels")
        mask.load()
        found = np.asarray(resize_image(mask, size, "nearest", crop)).astype("uint8")
        most = found[found != IGNORED].max(initial=0)
        if most >= count:
            raise ValueError(f"it has the label {most}, and {NAMES} names {count} classes, 0 to {count - 1}")
        return found

    image_size, image = read_opened(image_path, pixels, "an image")
    return image, read_opened(mask_path, labels, "a mask")
