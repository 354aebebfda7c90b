"""Smaller images, a batch at a time."""

from functools import lru_cache

import numpy as np

from tinyvit.backend import constant, device_of


def shrink(images, size):
    """Images (B, C, H, W) as (B, C, *size): each new pixel is the mean over the area that it covers.

    A pixel that is covered in part counts in part, so an image keeps its mean. Area weights, unlike the few pixels of a
    bilinear interpolation, leave nothing out that could alias.
    """
    H, W = images.shape[2:]
    height, width = size
    if not (0 < height <= H and 0 < width <= W):
        raise ValueError(f"expected a size of at most {H}×{W} to shrink images to, got {height}×{width}")
    if (height, width) == (H, W):
        return images
    device, dtype = device_of(images), images.dtype
    down, across = (areas_on(device, old, new, dtype) for old, new in ((H, height), (W, width)))
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
