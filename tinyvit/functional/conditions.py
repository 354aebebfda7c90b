"""The conditions that an image is generated from, as vectors: the time step and the class."""

from math import log
from typing import NamedTuple

import numpy as np

from tinyvit.arrays import Array, array_module
from tinyvit.dispatch import backward_of, operation


def timestep_embedding(t, dim=256, period=10_000):
    """Cosines, then sines, of times t (B,) at dim/2 frequencies exp(−ln(period) i / (dim/2)): (B, dim), float64.

    Peebles & Xie 2023, "Scalable diffusion models with transformers", section 3.2. Raises ValueError for an odd width.
    """
    if dim % 2 or dim < 2:
        raise ValueError(f"timestep_embedding: expected an even width, half cosines and half sines, got {dim}")
    xp = array_module(t)
    if getattr(t, "ndim", None) != 1:
        raise ValueError(f"timestep_embedding: expected times (B,), got {getattr(t, 'shape', type(t).__name__)}")
    frequencies = xp.exp(xp.arange(dim // 2, dtype="float64") * (-log(period) / (dim // 2)))
    angles = t[:, None] * frequencies
    return xp.concatenate([xp.cos(angles), xp.sin(angles)], axis=1)


class EmbedLabelsCache(NamedTuple):
    labels: Array  # (B,)
    shape: tuple   # of the table


@operation(any_dtype="labels")
def embed_labels(weight, labels):
    """Row labels_b of the table `weight` (K, D) for each sample b: (B, D).

    labels   (B,) ints from 0 to K − 1; on a GPU only their shape is looked at

    Peebles & Xie 2023, "Scalable diffusion models with transformers", section 3.2. Derived in notebooks/18.
    """
    if weight.ndim != 2:
        raise ValueError(f"embed_labels: expected a table (K, D), got {weight.shape}")
    if labels.dtype.kind not in "iu" or labels.ndim != 1:
        raise ValueError(f"embed_labels: expected labels (B,) as an array of ints, got {labels.dtype} {labels.shape}")
    if array_module(labels) is np and labels.size and not 0 <= labels.min() <= labels.max() < len(weight):
        raise ValueError(
            f"embed_labels: expected labels from 0 to {len(weight) - 1}, got {labels.min()} to {labels.max()}"
        )
    return weight[labels], EmbedLabelsCache(labels, weight.shape)


@backward_of(
    embed_labels,
    result=lambda cache: (len(cache.labels), cache.shape[1]),
    parameters=lambda cache: [cache.shape],
)
def embed_labels_backward(dy, cache):
    """A row's gradient is the sum over the samples that have used it: a product with zeros and ones, in one order."""
    xp = array_module(dy)
    used = (xp.arange(cache.shape[0])[:, None] == cache.labels).astype(dy.dtype)            # (K, B)
    return used @ dy
