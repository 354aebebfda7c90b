"""Small random changes to images that don't change what they show, a whole batch at a time.

images   (B, C, H, W)
uniform  random numbers in [0, 1), a row for each image
"""

from math import pi

from tinyvit.backend import array_module


def random_crop(images, padding, uniform):
    """Shift each image by up to `padding` pixels in each direction; what comes in from outside is zero.

    The same as padding with zeros and cutting out a window of the original size. uniform is (B, 2).
    """
    xp = array_module(images)
    B, C, H, W = images.shape
    roomy = xp.zeros((B, C, H + 2 * padding, W + 2 * padding), images.dtype)
    roomy[:, :, padding : padding + H, padding : padding + W] = images
    corner = (uniform * (2 * padding + 1)).astype("int64")                    # (B, 2)
    rows = corner[:, :1] + xp.arange(H)                                       # (B, H)
    columns = corner[:, 1:] + xp.arange(W)                                    # (B, W)
    sample, channel = xp.arange(B)[:, None, None, None], xp.arange(C)[None, :, None, None]
    return roomy[sample, channel, rows[:, None, :, None], columns[:, None, None, :]]


def random_flip(images, uniform):
    """Mirror half of the images left to right. uniform is (B,)."""
    xp = array_module(images)
    return xp.where((uniform < 0.5)[:, None, None, None], images[:, :, :, ::-1], images)


def random_affine(images, degrees, scale, uniform):
    """Turn each image by up to `degrees` and stretch it by up to a factor 1 ± `scale`, about its centre.

    Each pixel of the result is read from its place in the original, between four pixels in proportion to how near
    they are (bilinear); outside the image is zero. The result is float32. uniform is (B, 2).
    """
    xp = array_module(images)
    B, C, H, W = images.shape
    angle = (2 * uniform[:, :1] - 1) * (degrees * pi / 180)                   # (B, 1)
    stretch = 1 + (2 * uniform[:, 1:] - 1) * scale
    y, x = (grid.ravel() for grid in xp.meshgrid(xp.arange(H) - (H - 1) / 2, xp.arange(W) - (W - 1) / 2, indexing="ij"))
    cos, sin = xp.cos(angle) / stretch, xp.sin(angle) / stretch
    source_y = cos * y + sin * x + (H - 1) / 2                                # (B, H·W)
    source_x = cos * x - sin * y + (W - 1) / 2
    top, left = xp.floor(source_y), xp.floor(source_x)
    result = xp.zeros((B, C, H * W), "float32")
    for row, column in ((top, left), (top, left + 1), (top + 1, left), (top + 1, left + 1)):
        weight = (1 - xp.abs(source_y - row)) * (1 - xp.abs(source_x - column))
        weight = weight * ((row >= 0) & (row < H) & (column >= 0) & (column < W))
        place = xp.clip(row, 0, H - 1) * W + xp.clip(column, 0, W - 1)        # (B, H·W)
        place = place.astype("int64")[:, None]
        result += weight[:, None].astype("float32") * xp.take_along_axis(images.reshape(B, C, H * W), place, axis=2)
    return result.reshape(B, C, H, W)
