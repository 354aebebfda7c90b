"""What a trained model sees in image files."""

from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tinyvit.backend import to_device, to_numpy
from tinyvit.data import image_files, read_images
from tinyvit.training.evaluate import classify, log_softmax
from tinyvit.training.memory_needs import evaluation_batch
from tinyvit.training.metrics import check_finite, likeliest
from tinyvit.training.threads import thread_count

BATCH = 64  # images at a time, or fewer for a large model, so that thousands need no more memory than these


class Prediction(NamedTuple):
    """The likeliest classes of an image with their probabilities, the likeliest first; or why there are none."""

    path: Path
    top: list[tuple[str, float]]
    error: str | None = None


def predict(model, preprocessing, paths, *, top=5, tta=False, threads=None):
    """A `Prediction` for each image file, in order; one for each file that can't be read, too.

    paths   files, and folders, of which `image_files` are taken
    top     classes for each image, at most
    tta     averages over the image and its mirror image, as `classify` does

    Raises ValueError if `top` is below 1 or if the model gives no finite numbers.
    """
    if top < 1:
        raise ValueError(f"expected to name at least 1 class of each image, got top {top}")
    thread_count(threads)  # refused here if it is none
    files, count = iter(expand(paths)), evaluation_batch(model, BATCH)
    while batch := list(islice(files, count)):
        yield from predict_batch(model, preprocessing, batch, top, tta, threads)


def predict_batch(model, preprocessing, batch, top, tta, threads):
    """The predictions of the files in a list, some of which may be errors already."""
    paths = [item for item in batch if not isinstance(item, Prediction)]
    read = dict(zip(paths, read_images(paths, preprocessing.channels, preprocessing.img_size, threads)))
    good = {path: image for path, image in read.items() if not isinstance(image, ValueError)}
    done = {path: Prediction(path, [], str(error)) for path, error in read.items() if path not in good}
    if good:
        images = to_device(preprocessing(np.stack(list(good.values())), model.dtype.name), model.device)
        with np.errstate(all="ignore"):  # what overflows is said below
            logits = to_numpy(classify(model, images, threads, tta))
        check_finite(logits)
        probs = np.exp(log_softmax(logits.astype("float64")))
        for path, order, p in zip(good, likeliest(logits, top), probs):
            done[path] = Prediction(path, [(preprocessing.classes[k], float(p[k])) for k in order])
    return [item if isinstance(item, Prediction) else done[item] for item in batch]


def expand(paths):
    """The image files that `paths` stand for; a Prediction with an error for a folder that has none."""
    for path in map(Path, paths):
        if not path.is_dir():
            yield path
            continue
        try:
            yield from image_files(path) or [Prediction(path, [], f"{path} holds no images")]
        except OSError as error:
            yield Prediction(path, [], str(error))
