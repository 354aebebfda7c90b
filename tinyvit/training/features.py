"""What a ViT makes of images before its head reads it: a vector for each image, from any depth.

Layer 0 is what enters the first block, tokens with their positions, and layer i from 1 to L what block i gives: the
residual stream, as `probe.trace` has it. `None` stands for what the head reads: the last block's tokens after the final
norm. No other layer goes through that norm, whose weights were learned for the last block's tokens alone.
"""

from numbers import Integral
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tinyvit import functional as F
from tinyvit.backend import array_module, to_device, to_numpy
from tinyvit.data import Dataset
from tinyvit.nn import Context
from tinyvit.training.evaluate import batches, in_parts
from tinyvit.training.memory_needs import evaluation_batch
from tinyvit.training.predict import read_batches
from tinyvit.training.threads import thread_count

POOLS = {"token": F.pool_token, "mean": F.pool_mean}


class FileFeatures(NamedTuple):
    """The features (D,) of an image file; or why there are none."""

    path: Path
    features: np.ndarray | None
    error: str | None = None


def features(model, images, *, layer=None, pool=None, threads=None):
    """The features (n, D) of images, as a NumPy array in the dtype of the model's parameters: float32, as a rule.

    images   a `Dataset`, or an array (n, C, H, W) of normalised images
    layer    0 to L, or counted from the end: −1 is L. None is what the head reads
    pool     "token" reads the class token, "mean" averages the patches' tokens; by default as the model's head has it
    threads  that a batch is shared by

    With neither of both given, they are what the head makes the logits of. No block behind the layer is computed, and
    of a batch nothing is kept but its features.

    Raises ValueError for a layer or pool that there isn't, images that don't fit the model, and weights with which a
    feature is no finite number.
    """
    return features_by_layer(model, images, [layer], pool=pool, threads=threads)[:, 0]


def features_by_layer(model, images, layers, *, pool=None, threads=None):
    """The features (n, M, D) of images at M layers in one forward; see `features`."""
    layers, pool = [checked_layer(model, layer) for layer in layers], checked_pool(model, pool)
    if not layers:
        raise ValueError("expected at least one layer, got none")
    thread_count(threads)  # refused here if it is none
    rows = [to_numpy(read(model, batch, layers, pool, threads)) for batch in batches_of(model, images)]
    rows = np.concatenate(rows)
    return check_finite(rows, range(len(rows)))


def features_of_files(model, preprocessing, paths, *, layer=None, pool=None, threads=None):
    """`FileFeatures` of each image file, in order, a batch at a time; with an error for each file that can't be read.

    paths   files, and folders, of which `image_files` are taken

    Raises ValueError as `features` does.
    """
    layer, pool = checked_layer(model, layer), checked_pool(model, pool)
    for batch in read_batches(model, preprocessing, paths, threads):
        good = [(path, image) for path, image in batch if not isinstance(image, Exception)]
        if good:
            names, images = zip(*good)
            images = to_device(preprocessing(np.stack(images), model.dtype.name), model.device)
            rows = iter(check_finite(to_numpy(read(model, images, [layer], pool, threads))[:, 0], names))
        for path, image in batch:
            if isinstance(image, Exception):
                yield FileFeatures(path, None, str(image))
            else:
                yield FileFeatures(path, next(rows))


def batches_of(model, images):
    """The images on the model's device, as many at a time as an evaluation takes."""
    if isinstance(images, Dataset):
        yield from (batch.images for batch in batches(model, images))
        return
    if getattr(images, "ndim", None) != 4 or len(images) == 0:
        got = getattr(images, "shape", type(images).__name__)
        raise ValueError(f"expected a Dataset or normalised images (n, C, H, W) with n at least 1, got {got}")
    count = evaluation_batch(model)
    for first in range(0, len(images), count):
        yield to_device(images[first : first + count], model.device)


def read(model, images, layers, pool, threads):
    """The features (B, M, D) of a batch at M layers."""

    def of_part(part):
        ctx, found = Context(keep_caches=False), {}

        def keep(layer, tokens):
            if layer in layers:  # a copy, which doesn't hold the tokens that it was read off
                found[layer] = F.cast(POOLS[pool](tokens)[0], model.dtype).copy()

        tokens, _ = model.embed(part, ctx)                                     # (B, N+1, D)
        keep(0, tokens)
        deepest = len(model.blocks) if None in layers else max(layers)
        for i, block in enumerate(model.blocks[:deepest], 1):
            tokens, _ = block(tokens, ctx)
            keep(i, tokens)
        if None in layers:
            keep(None, model.encode.norm(tokens, ctx)[0])
        return array_module(part).stack([found[layer] for layer in layers], 1)

    with np.errstate(all="ignore"):  # what overflows is said by `check_finite`
        return in_parts(of_part, model, images, threads)


def checked_layer(model, layer):
    """A layer counted from 0, or None for what the head reads; ValueError, with those there are, if there is none."""
    depth = len(model.blocks)
    if layer is None:
        return None
    if not isinstance(layer, Integral) or isinstance(layer, bool) or not -depth - 1 <= layer <= depth:
        raise ValueError(f"there is no layer {layer}; the model has 0 to {depth}, or from the end −1 to −{depth + 1}")
    return int(layer) % (depth + 1)


def checked_pool(model, pool):
    """How tokens become one vector, by default as the model's head has it; ValueError if there is no such way."""
    if pool is None:
        return "token" if model.config.global_pool == "token" else "mean"
    if pool not in POOLS:
        raise ValueError(f"unknown pool {pool!r}; expected one of {', '.join(POOLS)}")
    return pool


def check_finite(rows, names):
    """The features of images of these names; ValueError if one is NaN or infinite."""
    if not np.isfinite(rows).all():
        wrong = int(np.flatnonzero(~np.isfinite(rows).reshape(len(rows), -1).all(1))[0])
        raise ValueError(
            f"the features of image {names[wrong]} are no finite numbers: the weights are damaged or diverged"
        )
    return rows
