"""Features of images: a vector for each image, read from any layer of a model.

Layer 0 is what the first layer reads, and layer i from 1 to L what layer i gives (of a ViT the residual stream, as
`probe.trace` has it). `None` is what the head reads. No other layer goes through the final norm, whose weights
were learned for the last layer's tokens alone.
"""

import os

import numpy as np

from tinyvit import functional as F
from tinyvit.arrays import array_module
from tinyvit.backend import to_device, to_numpy
from tinyvit.data import Dataset
from tinyvit.files import free_place, replace_file
from tinyvit.nn import Context
from tinyvit.training.inference import evaluation_batch, forwards, in_parts
from tinyvit.training.metrics import check_finite
from tinyvit.training.predict import of_files
from tinyvit.training.threads import thread_count

POOLS = ("token", "mean")


def features(model, images, *, layer=None, pool=None, threads=None):
    """The features (n, D) of images, as a NumPy array in the dtype of the model's parameters, usually float32.

    images   a `Dataset`, or an array (n, C, H, W) of normalised images
    layer    0 to L, or counted from the end: −1 is L. None is what the head reads
    pool     "token" reads the first token, if it is in front of those of the grid, such as a ViT's class token; "mean"
             averages the tokens of the grid; by default as the model does it
    threads  that a batch is shared by

    By default they are what the head computes the logits from. No layer after the one asked for is computed, and of a
    batch nothing is kept but its features.

    Raises ValueError for a layer or pool that doesn't exist, images that don't fit the model, and weights with which a
    feature is NaN or infinite.
    """
    return features_by_layer(model, images, [layer], pool=pool, threads=threads)[0]


def features_by_layer(model, images, layers, *, pool=None, threads=None):
    """A list with the features (n, D) of images at each of some layers, from one forward; see `features`."""
    layers = [None if layer is None else model.layer_number(layer) for layer in layers]
    pool = checked_pool(model, pool)
    if not layers:
        raise ValueError("expected at least one layer, got none")
    thread_count(threads)  # refused here if it is none
    found = [read(model, batch, layers, pool, threads) for batch in batches_of(model, images)]
    found = [np.concatenate(of_layer) for of_layer in zip(*found)]
    for rows in found:
        check_finite(rows, "features")
    return found


def features_of_files(model, preprocessing, paths, *, layer=None, pool=None, threads=None):
    """A `FileResult` of each image file, in order, a batch at a time: its features (D,), or an error for a file that
    can't be read.

    paths   files and folders; of folders, their `image_files`

    Raises ValueError as `features` does.
    """
    layer, pool = layer if layer is None else model.layer_number(layer), checked_pool(model, pool)

    def rows(images, names):
        (found,) = read(model, images, [layer], pool, threads)
        check_finite(found, "features", names)
        return found

    return of_files(rows, model, preprocessing, paths, threads)


def batches_of(model, images):
    """The images on the model's device, as many at a time as a forward of an evaluation takes."""
    if isinstance(images, Dataset):
        yield from (batch for batch, _ in forwards(model, images))
        return
    if getattr(images, "ndim", None) != 1 + len(model.image_shape) or len(images) == 0:
        got = getattr(images, "shape", type(images).__name__)
        raise ValueError(f"expected a Dataset or normalised images (n, C, H, W) with n at least 1, got {got}")
    count = evaluation_batch(model)
    for first in range(0, len(images), count):
        yield to_device(images[first : first + count], model.device)


def read(model, images, layers, pool, threads):
    """NumPy arrays (B, D) of a batch, one for each layer."""
    parts = model.parts()[: -1 if None in layers else max(layers) + 1]
    widths = []

    def of_part(x):
        ctx, found = model.context_of(x, Context(keep_caches=False)), {}
        for number, (_, part) in enumerate(parts):
            x, _ = part(x, ctx)
            if x.ndim > 2:
                tokens = x
            if number in layers:
                found[number] = vectors(model, x, pool)
        if None in layers:  # the parts before the head pool as the model does it
            found[None] = vectors(model, x if pool == model.pooling else tokens, pool)
        widths[:] = [found[layer].shape[1] for layer in layers]
        return array_module(x).concatenate([found[layer] for layer in layers], 1)

    together = to_numpy(in_parts(of_part, model, images, threads))
    return np.split(together, np.cumsum(widths)[:-1], axis=1)


def vectors(model, x, pool):
    """One vector (B, D) for each image from tokens (B, N, D) or feature maps (B, C, H, W), as a copy."""
    if x.ndim == 4:
        x = x.mean((2, 3))
    elif x.ndim == 3:
        x, _ = F.pool_token(x) if pool == "token" else F.pool_mean(x, model.num_prefix_tokens)
    return F.cast(x, model.dtype).copy()


def checked_pool(model, pool):
    """The pooling of tokens, by default the model's; ValueError for an unknown one."""
    if pool is None:
        return model.pooling
    if pool not in POOLS:
        raise ValueError(f"unknown pool {pool!r}; expected one of {', '.join(POOLS)}")
    if pool == "token" and not model.num_prefix_tokens:
        raise ValueError(f"{type(model).__name__} has no token in front of its grid to read; take the pool mean")
    return pool


# -- in a file --------------------------------------------------------------------------------------------------------


def save_features(files, out, names):
    """Write the features of images to `out`, float32 (n, D), and their paths to `names`, a line each, in their order.

    files   `FileResult`s without errors, whose paths have no line breaks
    out     a .npy file, as `numpy.load` reads it, also mapped
    names   a text file in the encoding of the system's file names

    Both files are put in place when they are complete, the names first. Returns (n, D), or (0, None) where nothing is
    written.
    """
    files = list(files)
    if not files:
        return 0, None
    rows = np.stack([file.result for file in files]).astype("<f4")
    with replace_file(out) as array, replace_file(names) as lines:
        np.save(array, rows)
        lines.write(b"".join(os.fsencode(file.path) + b"\n" for file in files))
    return rows.shape


def check_new_files(out, names=None):
    """`out` and the file for the names, by default `out` with the suffix .txt, as paths.

    Raises ValueError unless `out` ends with .npy, neither exists, and their folders do.
    """
    out = free_place(out)
    if out.suffix != ".npy":
        raise ValueError(f"features are written to a .npy file, got --out {out}; expected a name such as features.npy")
    names = free_place(out.with_suffix(".txt") if names is None else names)
    for path, option in ((out, "--out"), (names, "--names")):
        if not path.absolute().parent.is_dir():
            raise ValueError(f"{path} is in {path.parent}, which doesn't exist; choose another name with {option}")
    if names.absolute() == out.absolute():
        raise ValueError(f"features and names would both be written to {out}; choose another name with --names")
    return out, names
