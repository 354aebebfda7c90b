"""Views of images: random parts of them, resized, mirrored and recoloured, a whole batch at a time.

Caron et al. 2021, "Emerging properties in self-supervised vision transformers", section 3.1, with the augmentation of
Grill et al. 2020, "Bootstrap your own latent", appendix B; without its blur and hue, for images of a few pixels.
"""

import math

import numpy as np

from tinyvit.arrays import array_module
from tinyvit.data import colour

MAX_ASPECT = 4 / 3  # widest shape of a crop, width to height; 3/4 is the narrowest
CUBIC_SLOPE = -0.5  # slope of the bicubic kernel at 1, as in Pillow
GREY, CHANGED, SOLARIZED = 0.2, 0.8, 0.2  # probabilities


def random_boxes(uniform, smallest, largest):
    """Boxes (..., 4), top, left, height and width as shares of the image's, from numbers (..., 4) in [0, 1).

    smallest, largest   share of the image's area that a box covers; the shape is log-uniform from 3:4 to 4:3, and the
                        sides are cut to the image's. Szegedy et al. 2015, section 6
    """
    area = smallest + (largest - smallest) * uniform[..., 0].astype("float64")
    ratio = np.exp((2 * uniform[..., 1] - 1) * math.log(MAX_ASPECT))
    height, width = np.minimum(1, (area / ratio) ** 0.5), np.minimum(1, (area * ratio) ** 0.5)
    return np.stack([(1 - height) * uniform[..., 2], (1 - width) * uniform[..., 3], height, width], axis=-1)


def resized_crops(images, boxes, mirrored, side):
    """Crops (B, n, C, side, side) of images (B, C, H, W): n boxes (B, n, 4) of each, those `mirrored` (B, n) left to
    right.

    Each pixel is a weighted mean, by the bicubic kernel, widened where the crop shrinks: what Pillow's resize with a
    box does, as two products of matrices, one along each axis.
    """
    xp, (top, left, height, width) = array_module(images), np.moveaxis(boxes, -1, 0)
    H, W = images.shape[2:]
    start, length = np.where(mirrored, left + width, left), np.where(mirrored, -width, width)  # read backwards
    rows = weights(xp.asarray(top * H), xp.asarray(height * H), H, side).astype(images.dtype)
    columns = weights(xp.asarray(start * W), xp.asarray(length * W), W, side).astype(images.dtype)
    return rows[:, :, None] @ images[:, None] @ columns.mT[:, :, None]


def weights(start, length, pixels, side):
    """The weights (..., side, pixels) of `pixels` in a row in each of `side` new ones, that span `length` (...)."""
    xp = array_module(start)
    step = (length / side)[..., None, None]
    middle = start[..., None, None] + (xp.arange(side)[:, None] + 0.5) * step              # (..., side, 1)
    found = cubic(abs(xp.arange(pixels) + 0.5 - middle) / xp.maximum(abs(step), 1))
    return found / found.sum(-1, keepdims=True)


def cubic(x):
    """The bicubic kernel at distances x ≥ 0; it is 0 from 2 on. Keys 1981."""
    where, a = array_module(x).where, CUBIC_SLOPE
    inner = ((a + 2) * x - (a + 3)) * x * x + 1
    return where(x < 1, inner, where(x < 2, (((x - 5) * x + 8) * x - 4) * a, 0))


def recolour(levels, uniform, strength, solarized):
    """Images (n, C, S, S), levels from 0 to 255, with changed brightness, contrast and saturation, some grey.

    uniform     (n, 6), in [0, 1)
    strength    the first two factors are from 1 − strength to 1 + strength, that of saturation half as far from 1
    solarized   (n,)  whether a fifth of such images have levels from 128 on turned round
    """
    xp = array_module(levels)
    factors = 1 + strength * np.array([1, 1, 0.5]) * (2 * uniform[:, :3] - 1)
    factors[uniform[:, 3] >= CHANGED] = 1
    factors[uniform[:, 4] < GREY, 2] = 0
    threshold = np.where(solarized & (uniform[:, 5] < SOLARIZED), 128.0, 256.0)
    factors = xp.asarray(np.column_stack([factors, threshold]).astype(levels.dtype))        # in one upload
    levels = colour.contrast(colour.brightness(levels, factors[:, 0]), factors[:, 1])
    return colour.solarize(colour.saturation(levels, factors[:, 2]), factors[:, 3])
