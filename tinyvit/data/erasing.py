"""Random erasing: a rectangle of the image is wiped out, so that an object must be recognised from its parts.

Zhong et al. 2020, "Random erasing data augmentation", algorithm 1.
"""

import numpy as np

from tinyvit.arrays import array_module

AREA = (0.02, 0.4)       # share of the image that is erased, at least and at most
ASPECT = (0.3, 1 / 0.3)  # height to width


def rectangles(uniform, probability, H, W):
    """Rectangles to erase, one for each image: ints (B, 4), top, bottom, left, right; empty for those left whole.

    uniform (B, 5), in [0, 1): whether, area, aspect, top, left. The paper draws area and aspect until the rectangle
    fits; here the aspect is drawn from those that fit, so that one draw does, and in the logarithm, so that high
    rectangles are as likely as wide ones.
    """
    chance, area, aspect, top, left = uniform.T.astype("float64")
    area = (AREA[0] + (AREA[1] - AREA[0]) * area) * H * W                     # (B,)
    least, most = (np.log(np.clip(bound, area / W**2, H**2 / area)) for bound in ASPECT)
    aspect = np.exp(least + (most - least) * aspect)
    height = np.clip(np.floor(np.sqrt(area * aspect) + 0.5), 1, H)
    width = np.clip(np.floor(np.sqrt(area / aspect) + 0.5), 1, W)
    height = np.where(chance < probability, height, 0)
    top, left = np.floor(top * (H - height + 1)), np.floor(left * (W - width + 1))
    return np.stack([top, top + height, left, left + width], 1).astype("int64")


def erase(images, rectangles):
    """Images (B, C, H, W), normalised, that are zero inside of their rectangle: the mean colour of the data set.

    The paper's variant RE-M. Its noise (RE-R) does as well, but costs a random number for every pixel.
    """
    xp = array_module(images)
    top, bottom, left, right = xp.asarray(rectangles).T[:, :, None]           # (B, 1)
    row, column = xp.arange(images.shape[2]), xp.arange(images.shape[3])
    rows, columns = (row >= top) & (row < bottom), (column >= left) & (column < right)
    inside = rows[:, None, :, None] & columns[:, None, None, :]               # (B, 1, H, W)
    return xp.where(inside, 0, images)
