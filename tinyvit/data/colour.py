"""Operations on the colours of images, a whole batch at a time; each equals Pillow's within one level.

images   (B, C, H, W), real levels from 0 (black) to 255 (fully lit), C of 1 or 3
factor   (B,)  1 leaves an image as it is, 0 removes the property, above 1 increases it
"""

from tinyvit.arrays import array_module

LUMA = (0.299, 0.587, 0.114)  # ITU-R BT.601: how bright red, green and blue look


def brightness(images, factor):
    """factor · image: 0 is black. Pillow's ImageEnhance.Brightness."""
    return clip(images * column(factor))


def contrast(images, factor):
    """mean + factor · (image − mean), by the mean of the grey image. Pillow's ImageEnhance.Contrast."""
    mean = grey(images).mean((1, 2, 3), dtype="float64", keepdims=True)  # the same bits in whatever order it is summed
    return blend(mean.astype(images.dtype), images, factor)


def saturation(images, factor):
    """grey + factor · (image − grey): 0 is the grey image, and a grey image stays. Pillow's ImageEnhance.Color."""
    return images if images.shape[1] == 1 else blend(grey(images), images, factor)


def sharpness(images, factor):
    """smooth + factor · (image − smooth). Pillow's ImageEnhance.Sharpness.

    smooth is each pixel's mean with its eight neighbours, itself counted five times; pixels at the edge stay.
    """
    rows = images[:, :, :-2] + images[:, :, 1:-1] + images[:, :, 2:]          # (B, C, H−2, W)
    boxes = rows[..., :-2] + rows[..., 1:-1] + rows[..., 2:]                  # (B, C, H−2, W−2)
    smooth = images.copy()
    inside = smooth[:, :, 1:-1, 1:-1]
    inside[:] = (boxes + 4 * inside) * (1 / 13)
    return blend(smooth, images, factor)


def posterize(images, bits):
    """Only the first `bits` (B,) of a level's eight bits, an integer array. Pillow's ImageOps.posterize."""
    xp = array_module(images)
    step = column(xp.left_shift(1, 8 - bits).astype(images.dtype))
    return xp.where(step > 1, xp.floor(whole(images) / step) * step, images)


def solarize(images, threshold):
    """255 − level where the level is at or above `threshold` (B,). Pillow's ImageOps.solarize."""
    return array_module(images).where(whole(images) >= column(threshold), 255 - images, images)


def autocontrast(images):
    """Each channel stretched so that its darkest pixel is 0 and its brightest 255. Pillow's ImageOps.autocontrast."""
    xp = array_module(images)
    low, high = images.min((2, 3), keepdims=True), images.max((2, 3), keepdims=True)
    span = xp.where(high > low, high - low, 255)
    return xp.where(high > low, (images - low) * (255 / span), images)


def equalize(images):
    """Each channel's levels spread so that equally many pixels fall on every stretch. Pillow's ImageOps.equalize.

    level → (pixels below the level + step/2) / step, step = pixels below the brightest level / 255, all in whole
    numbers, as in Pillow: channels of fewer than 256 pixels stay as they are.
    """
    xp = array_module(images)
    B, C, H, W = images.shape
    levels = whole(images).astype("int64").reshape(B * C, H * W)
    channel = xp.arange(B * C)[:, None] * 256
    histogram = xp.zeros(B * C * 256, "int32")
    xp.add.at(histogram, (channel + levels).reshape(-1), xp.int32(1))  # an int32 1: NumPy is 30 times slower with 1
    up_to = histogram.reshape(B * C, 256).cumsum(1)
    below = up_to - histogram.reshape(B * C, 256)                             # (BC, 256)
    brightest = levels.max(1)[:, None]
    step = xp.take_along_axis(below, brightest, 1) // 255                     # (BC, 1)
    table = xp.clip((below + step // 2) // xp.maximum(step, 1), 0, 255).astype(images.dtype)
    spread = table.reshape(-1).take(channel + levels)                         # (BC, HW)
    return xp.where(step > 0, spread, images.reshape(B * C, H * W)).reshape(images.shape)


def grey(images):
    """The brightness that the eye sees, (B, 1, H, W)."""
    if images.shape[1] == 1:
        return images
    red, green, blue = (images[:, i : i + 1] for i in range(3))
    return LUMA[0] * red + LUMA[1] * green + LUMA[2] * blue


def blend(without, images, factor):
    """without + factor · (images − without), cut off at black and fully lit."""
    return clip(without + column(factor) * (images - without))


def clip(images):
    return array_module(images).clip(images, 0, 255)


def whole(images):
    """Whole levels. What rounding left just below one counts as that level: pixels may be fractions k/255."""
    return array_module(images).floor(clip(images) + 2**-8)


def column(numbers):
    """(B,) as (B, 1, 1, 1)."""
    return numbers[:, None, None, None]
