"""Small random changes to images that don't change what they show, a whole batch at a time.

images   (B, C, H, W)
uniform  random numbers in [0, 1), a row for each image
"""

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
