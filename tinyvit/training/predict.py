"""Predictions for image files."""

import warnings
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tinyvit.backend import to_device, to_numpy
from tinyvit.data.images import image_files
from tinyvit.data.videos import video_files
from tinyvit.functional.softmax import log_softmax
from tinyvit.training.inference import evaluation_batch
from tinyvit.training.metrics import check_finite, likeliest
from tinyvit.training.tasks.classification import classify
from tinyvit.training.threads import thread_count

MAX_BATCH_IMAGES = 64  # images at a time, or fewer for a large model, so that thousands need no more memory than these


class FileResult(NamedTuple):
    """The prediction of a model for an image file, or the reason why there is none."""

    path: Path
    result: Any
    error: str | None = None


class PixelClasses(NamedTuple):
    """The classes of the pixels of an image file."""

    shares: list        # (name, share of the pixels) of the classes that it has, the largest first
    pixels: np.ndarray  # (C, H, W) from 0 to 1, as the image was prepared
    labels: np.ndarray  # (H, W)  number of each pixel's likeliest class


def predict(model, preprocessing, paths, *, top=5, tta=False, invert=False, threads=None):
    """A `FileResult` for each image file, in order, with its likeliest classes as (name, probability), the likeliest
    first; one for each file that can't be read, too.

    paths   files and folders; of folders, their `image_files`
    top     classes for each image, at most
    tta     averages over the image and its mirror image, as `classify` does
    invert  takes the negative of each image, black for white

    Warns of images that are mostly light where the training images were mostly dark, or the reverse. Raises ValueError
    if `top` is below 1 or if the model's output is NaN or infinite.
    """
    if top < 1:
        raise ValueError(f"expected to name at least 1 class of each image, got top {top}")

    def named(images, _):
        logits = to_numpy(classify(model, images, threads, tta))
        check_finite(logits)
        for order, p in zip(likeliest(logits, top), np.exp(log_softmax(logits.astype("float64")))):
            yield [(preprocessing.classes[k], float(p[k])) for k in order]

    return of_files(named, model, preprocessing, paths, threads, invert)


def predict_pixels(model, preprocessing, paths, *, threads=None):
    """A `FileResult` for each image file, in order, with its `PixelClasses`.

    paths   files and folders; of folders, their `image_files`

    Raises ValueError if the model's output is NaN or infinite.
    """
    mean, std = (np.reshape(x, (-1, 1, 1)) for x in (preprocessing.mean, preprocessing.std))

    def labelled(images, names):
        logits = to_numpy(classify(model, images, threads))
        check_finite(logits.reshape(len(logits), -1), names=names)
        for image, labels in zip(to_numpy(images) * std + mean, logits.argmax(1)):
            counts = np.bincount(labels.ravel(), minlength=len(preprocessing.classes))
            shares = [(preprocessing.classes[k], float(counts[k] / labels.size)) for k in np.argsort(-counts)]
            yield PixelClasses([pair for pair in shares if pair[1]], image, labels)

    return of_files(labelled, model, preprocessing, paths, threads)


def of_files(function, model, preprocessing, paths, threads=None, invert=None):
    """A `FileResult` of each image file of `paths`, in order; one with an error for a file that can't be read, and for
    a folder without images.

    function(images, paths) has a result for each prepared image of a batch, as many at a time as the model takes.
    `invert` is as for `predict`; None, for callers without it, warns of nothing.
    """
    thread_count(threads)  # refused here if it is none
    files, count = iter(expand(paths, preprocessing.frames is not None)), evaluation_batch(model, MAX_BATCH_IMAGES)
    while batch := list(islice(files, count)):
        pixels = iter(preprocessing.read([path for path, error in batch if error is None], threads))
        batch = [(path, error or next(pixels)) for path, error in batch]
        good = [(path, image) for path, image in batch if not isinstance(image, Exception)]
        if good:
            names, images = zip(*good)
            images = preprocessing.batch(images)
            if invert is not None:
                images = 255 - images if invert else images
                warn_if_inverted(images, np.mean(preprocessing.mean), invert)
            images = to_device(preprocessing(images, model.dtype.name), model.device)
            results = iter(function(images, names))
        for path, image in batch:
            failed = isinstance(image, Exception)
            yield FileResult(path, None, str(image)) if failed else FileResult(path, next(results))


def warn_if_inverted(images, mean, invert):
    """Warn if one of the images, uint8 (B, …), or objects (B,), is mostly light and the training images were mostly
    dark, or vice versa.

    mean   the mean of the training images' pixels, from 0 to 1
    """
    levels = np.array([image.mean() / 255 for image in images])
    is_light, is_dark = mean < 0.4 and levels.max() > 0.6, mean > 0.6 and levels.min() < 0.4
    if is_light or is_dark:
        own, other = ("light", "dark") if is_light else ("dark", "light")
        advice = "leave out --invert" if invert else "try --invert, which takes the negative"
        warnings.warn(f"an image is mostly {own}, and the training images were mostly {other}: {advice}", stacklevel=2)


def expand(paths, videos=False):
    """(image file, None) for each file and each image in a folder; (folder, error) for a folder without images. With
    `videos`, likewise of the `video_files`, which may be folders of frames."""
    for path in map(Path, paths):
        if not path.is_dir():
            yield path, None
            continue
        try:
            files = [*video_files(path)] if videos else image_files(path)
        except OSError as error:
            yield path, error
            continue
        yield from ((file, None) for file in files)
        if not files:
            yield path, ValueError(f"{path} holds no {'videos' if videos else 'images'}")
