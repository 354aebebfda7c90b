"""First filters that whiten what they read."""

import numpy as np

from tinyvit.backend import to_numpy
from tinyvit.functional.patches import patchify

MAX_IMAGES = 5000  # more give the same variances to three digits
EPS = 0.01  # added to each variance: pixels have variance 1, and what varies less than this is hardly amplified


def whitening_filters(dataset, patch_size, eps=EPS):
    """Filters (2 K, C, P, Q) under which the patches of a dataset are uncorrelated, with variances near 1.

        Σ = E[p pᵀ] = V Λ Vᵀ over the patches p of normalised images        w_k = v_k / √(λ_k + ε)

    w_1, −w_1, w_2, −w_2, … for the K = C·P·Q principal components, the largest variance first; both signs, as a ReLU
    passes one of them. Page 2019, "How to train your ResNet 8: bag of tricks"; Jordan 2024, "94% on CIFAR-10 in 3.29
    seconds on a single GPU", section 3.2, which keeps the filters as they are, too.
    """
    images = dataset.images[:: -(-len(dataset.images) // MAX_IMAGES)]
    height, width = (side // patch * patch for side, patch in zip(images.shape[2:], patch_size))
    moments, count = 0, 0
    for start in range(0, len(images), 100):
        some = dataset.normalise(images[start : start + 100, :, :height, :width], "float64")
        patches, _ = patchify(some, patch_size)                               # (B, N, C·P·Q)
        patches = patches.reshape(-1, patches.shape[-1])
        moments, count = moments + patches.T @ patches, count + len(patches)
    variances, components = np.linalg.eigh(moments / count)                    # in ascending order; columns
    filters = components[:, ::-1] / (variances[::-1].clip(0) + eps) ** 0.5
    both = np.stack((filters.T, -filters.T), axis=1)                           # (K, 2, C·P·Q)
    return both.reshape(-1, images.shape[1], *patch_size)


def whiten(model, dataset):
    """Replace the filters by which a model reads its images by `whitening_filters`, as many as it has of them.

    Filters beyond the 2·C·P·Q that there can be keep their random weights. Raises ValueError for a model without any.
    """
    weight = model.image_filters
    if weight is None:
        raise ValueError(f"init.whiten needs filters that read the images, and a {type(model).__name__} has none")
    filters = whitening_filters(dataset, weight.shape[2:])[: len(weight.data)]
    values = to_numpy(weight.data).copy()
    values[: len(filters)] = filters
    weight.data = values
