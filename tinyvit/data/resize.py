"""Images of another size: a whole data set by Pillow, once; or smaller ones by array code, a batch at a time."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import lru_cache
from math import prod

import numpy as np

from tinyvit.backend import constant, device_of

CHANNELS_AT_A_TIME = 256  # of images, in a thread


def resize_dataset(dataset, size, resample="bicubic", crop=1.0):
    """A `Dataset` with images of another size (H, W), smaller or larger, by Pillow; with its own if that is its size.

    resample, crop   as for `read_image`

    Each image is resized until its shorter side fits, and cut out of the middle, or stretched, as `read_image` does: a
    file of the data set is then seen as the data set's own image. Bytes stay bytes. Other pixels become float32,
    clipped to the range from black to white. Raises ValueError if that takes more than this machine's
    memory.
    """
    from PIL import Image

    from tinyvit.data.images import MAX_THREADS, check_memory, height_width, resize_image

    images, size = dataset.images, height_width(size)
    if images.shape[-2:] == size:
        return dataset
    as_bytes, shape = images[0].dtype == np.uint8 and dataset.scale == 255, images[0].shape[:-2]
    new = np.dtype("uint8" if as_bytes else "float32")
    check_memory(len(images), prod(shape) * new.itemsize, size)
    planes = [plane for image in images for plane in image.reshape(-1, *image.shape[-2:])]  # a channel each, of a frame
    result = np.empty((len(planes), *size), new)

    def run(first):
        for i in range(first, min(first + CHANNELS_AT_A_TIME, len(planes))):
            result[i] = resize_image(Image.fromarray(planes[i].astype(new)), size, resample, crop)

    with ThreadPoolExecutor(MAX_THREADS) as pool:
        list(pool.map(run, range(0, len(planes), CHANNELS_AT_A_TIME)))
    result = result.reshape(len(images), *shape, *size)
    labels = dataset.labels
    if labels.ndim > 1:
        masks = map(Image.fromarray, labels.astype("uint8"))
        labels = np.stack([resize_image(mask, size, "nearest", crop) for mask in masks])
    return replace(dataset, labels=labels, images=result if as_bytes else result.clip(0, dataset.scale))


def shrink(images, size):
    """Images (B, C, H, W) as (B, C, *size): each new pixel is the mean over the area that it covers.

    A pixel that is covered in part counts in part, so an image keeps its mean. Area weights, unlike the few pixels of a
    bilinear interpolation, leave nothing out that could alias.
    """
    if images.dtype.kind == "O":  # of several sizes, which stay as they are
        return images
    H, W = images.shape[-2:]
    if size == (H, W):
        return images
    device, dtype = device_of(images), images.dtype
    down, across = (areas_on(device, old, new, dtype) for old, new in zip((H, W), size))
    return down @ (images @ across.T)


def areas(old, new):
    """How much of each of `old` pixels along an axis goes into each of `new` ones: (new, old), rows adding up to 1."""
    edges = np.arange(new + 1)[:, None] * (old / new)                     # of the new pixels, in old ones
    covered = np.clip(edges - np.arange(old), 0, 1)                       # how much of a pixel lies before each edge
    return np.diff(covered, axis=0) * (new / old)


@lru_cache(maxsize=32)
def areas_on(device, old, new, dtype):
    """`areas`, kept on a device: every step asks for the same ones."""
    return constant(areas(old, new), device, dtype)
