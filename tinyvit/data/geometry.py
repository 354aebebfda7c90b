"""Crops, flips, turns, shears and shifts as matrices, and one resampling for all of them.

A matrix (B, 3, 3) takes the place (y, x, 1) of a pixel in the new image to the place in the old one that it is read
from; places are in pixels from the middle of the image. So what is done first stands first in a product: a crop, then a
flip is `crop @ flip`, and the pixels are moved only once. The matrices are made on the host, being tiny, from numbers
that are drawn there.
"""

import numpy as np

from tinyvit.arrays import array_module


def crop(uniform, padding):
    """Shift by up to `padding` whole pixels in each direction: padding with zeros, then cutting out a window.

    uniform (B, 2), in [0, 1). Krizhevsky et al. 2012, section 4.1; with padding He et al. 2016, section 4.2.
    """
    return translate(np.floor(uniform.astype("float64") * (2 * padding + 1)) - padding)


def flip(uniform):
    """Mirror half of the images left to right: those whose number is below 1/2. uniform (B,), in [0, 1)."""
    return matrices(len(uniform), xx=np.where(uniform < 0.5, -1.0, 1.0))


def rotate(degrees):
    """Turn about the middle, counter-clockwise. degrees (B,)."""
    cos, sin = np.cos(np.radians(degrees)), np.sin(np.radians(degrees))
    return matrices(len(degrees), yy=cos, yx=sin, xy=-sin, xx=cos)


def shear_x(slope):
    """Move each row to the left by `slope` times its distance below the middle. slope (B,)."""
    return matrices(len(slope), xy=slope)


def shear_y(slope):
    """Move each column up by `slope` times its distance to the right of the middle. slope (B,)."""
    return matrices(len(slope), yx=slope)


def translate(shift):
    """Read each pixel `shift` (B, 2) further down and to the right: the picture moves up and to the left."""
    return matrices(len(shift), y=shift[:, 0], x=shift[:, 1])


def matrices(B, yy=1.0, yx=0.0, y=0.0, xy=0.0, xx=1.0, x=0.0):
    """(B, 3, 3) float64: the new (y, x) is read from (yy y + yx x + y, xy y + xx x + x)."""
    result = np.zeros((B, 3, 3))
    result[:, 0, 0], result[:, 0, 1], result[:, 0, 2] = yy, yx, y
    result[:, 1, 0], result[:, 1, 1], result[:, 1, 2] = xy, xx, x
    result[:, 2, 2] = 1
    return result


def resample(images, matrices, outside=0):
    """Images (B, C, H, W) with each pixel read where the image's matrix says, from the nearest pixel of the old image.

    What is read outside of the old image is `outside`, black by default. Nearest rather than bilinear, as is the
    default of the policies' published versions: it costs one gather of bytes, blurs nothing, and is exact for crops and
    flips.
    """
    xp = array_module(images)
    B, C, H, W = images.shape
    framed = xp.full((B, C, H + 2, W + 2), outside, images.dtype)  # whatever is read outside is read from the frame
    framed[:, :, 1:-1, 1:-1] = images
    (yy, yx, y), (xy, xx, x) = np.moveaxis(matrices[:, :2], 0, -1)
    # 1.5 = 1 for the frame, and 1/2 to round to the nearest when the fraction is cut off.
    parts = *steps(yy, yx, y + (H - 1) / 2 + 1.5, H, W), *steps(xy, xx, x + (W - 1) / 2 + 1.5, H, W)
    parts = xp.asarray(np.concatenate(parts, axis=1).astype("float32"))       # (B, 2(H+W)), in one upload
    row = source(parts[:, : H + W], H, last=H + 1)                            # (B, H, W)
    column = source(parts[:, H + W :], H, last=W + 1)
    place = (row * (W + 2) + column)[:, None]                                 # (B, 1, H, W)
    plane = xp.arange(B * C).reshape(B, C, 1, 1) * ((H + 2) * (W + 2))
    return framed.reshape(-1).take(place + plane)


def steps(by_y, by_x, offset, H, W):
    """by_y y + offset for every row y of an image, and by_x x for every column x: (B, H) and (B, W)."""
    down = by_y[:, None] * (np.arange(H) - (H - 1) / 2) + offset[:, None]
    return down, by_x[:, None] * (np.arange(W) - (W - 1) / 2)


def source(parts, H, last):
    """The sum of `steps` for every pixel, rounded down and kept within 0 and `last`: ints (B, H, W)."""
    places = parts[:, :H, None] + parts[:, None, H:]
    return array_module(parts).clip(places, 0, last).astype("int64")
