"""Two images in one, and a target that says how much there is of each.

images   (B, C, H, W)
targets  (B, K) probabilities
Each image is mixed with the one as far from the batch's end as it is from its start: the order is random already.
λ, the share of an image itself, is drawn once per batch from Beta(α, α), as in both papers' code.
"""

import numpy as np

from tinyvit.arrays import array_module


def one_hot(labels, K, dtype):
    """Labels (B,) as probabilities (B, K)."""
    return (labels[:, None] == array_module(labels).arange(K)).astype(dtype)


def mixup(images, targets, share):
    """λ · image + (1 − λ) · partner, of images and targets alike; λ = share, a float.

    Zhang et al. 2018, "mixup: beyond empirical risk minimization", equation 1 and figure 1a.
    """
    return share * images + (1 - share) * images[::-1], share * targets + (1 - share) * targets[::-1]


def cutmix(images, targets, box):
    """The rectangle `box` (top, bottom, left, right), ints, cut out of the partner and pasted in.

    λ in the targets is the exact share of the pixels that are the image's own.
    Yun et al. 2019, "CutMix: regularization strategy to train strong classifiers with localizable features".
    """
    top, bottom, left, right = box
    share = 1 - (bottom - top) * (right - left) / (images.shape[-2] * images.shape[-1])
    mixed = images.copy()
    mixed[..., top:bottom, left:right] = images[::-1, ..., top:bottom, left:right]
    return mixed, share * targets + (1 - share) * targets[::-1]


def random_box(generator, share, H, W):
    """A box of H√(1−λ) by W√(1−λ) pixels about a random pixel, less what sticks out (Yun et al. 2019, section 3.1)."""
    side = np.sqrt(1 - share)
    edges = []
    for length in (H, W):
        middle, half = int(generator.integers(length)), int(length * side) // 2
        edges += [max(middle - half, 0), min(middle + half, length)]
    return tuple(edges)
