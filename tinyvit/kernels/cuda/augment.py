"""The changes to images of bytes in one pass, with the bits of `data.augment`."""

import numpy as np

from tinyvit.arrays import array_module
from tinyvit.backend import device_of
from tinyvit.data import geometry
from tinyvit.data.augment import CHANGED, apply_changes
from tinyvit.data.dataset import factor_and_shift
from tinyvit.data.policy import OPERATIONS
from tinyvit.kernels.cuda.source import Source, contiguous, empty_like

SOURCE = Source("augment.cu", [{}])
BLOCK = 256
SHARPNESS = OPERATIONS.index("sharpness")


def changed_cuda(images, changes, dataset, dtype):
    shape, operations = images.shape, 0
    planes = images[0].size // (shape[-1] * shape[-2]) if len(images) else 0
    if changes.choices is not None:
        operations = changes.choices.operation.shape[1]
        if planes not in (1, 3):
            return apply_changes(images, changes, dataset, dtype)
    xp, images = array_module(images), contiguous(images)
    factor, shift = factor_and_shift(
        tuple(dataset.mean), tuple(dataset.std), dataset.scale, np.dtype("float32"), device_of(images), len(shape) - 2
    )
    y = empty_like(images, "float32")
    sharpened = operations and (changes.choices.operation == SHARPNESS).any()
    SOURCE.launch(
        "change_images", len(images), BLOCK, images, xp.asarray(as_numbers(changes, len(images))), factor, shift, y,
        empty_like(y) if sharpened else y, 255 / dataset.scale, dataset.scale / 255, operations, planes,
        planes // shape[1], *shape[-2:],
    )  # fmt: skip
    return y


def as_numbers(changes, B):
    """The changes as float64 (B, 10 + 2n), one upload: two rows of the matrix, the rectangle, n operations, n amounts.

    Amounts are rounded to float32, as `policy.recolour` does it.
    """
    matrices = geometry.matrices(B) if changes.matrices is None else changes.matrices
    parts = [matrices[:, :2].reshape(B, 6), np.zeros((B, 4)) if changes.rectangles is None else changes.rectangles]
    if changes.choices is not None:
        parts += [changes.choices.operation, changes.choices.amount.astype("float32")]
    return np.concatenate(parts, axis=1, dtype="float64")


CHANGED.register(("cupy", "uint8"), changed_cuda)
