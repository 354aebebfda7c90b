"""Many images as one picture, and pictures as the bytes of a file."""

import io

import numpy as np

GAP = 2                   # pixels between images
MIN_SIDE_PIXELS = 48      # that an image's longer side has at least: each of its own becomes a square of several
LAST_MILLISECONDS = 1500  # that a GIF shows its last picture
FRAME_MILLISECONDS = 60   # and each of the others


def grid(images, columns):
    """Images (n, C, H, W) from 0 to 1 in rows of `columns`: a picture (height, width, 3) of bytes on white.

    Raises ValueError for images that have neither 1 nor 3 channels.
    """
    n, channels, height, width = images.shape
    if channels not in (1, 3):
        raise ValueError(f"a picture shows images of 1 or 3 channels, got {channels}; write them as numbers, to .npy")
    factor = -(-MIN_SIDE_PIXELS // max(height, width))
    pixels = np.rint(np.clip(images, 0, 1) * 255).astype("uint8").transpose(0, 2, 3, 1)
    pixels = np.broadcast_to(pixels, (n, height, width, 3)).repeat(factor, 1).repeat(factor, 2)
    rows, (_, height, width, _) = -(-n // columns), pixels.shape
    picture = np.full((rows * (height + GAP) + GAP, columns * (width + GAP) + GAP, 3), 255, "uint8")
    for number, image in enumerate(pixels):
        top, left = (GAP + place * (side + GAP) for place, side in zip(divmod(number, columns), (height, width)))
        picture[top : top + height, left : left + width] = image
    return picture


def png(picture):
    """The bytes of a .png file."""
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(picture).save(buffer, "PNG")
    return buffer.getvalue()


def gif(pictures):
    """The bytes of a .gif file that shows pictures one after the other, the last one longer, again and again."""
    from PIL import Image

    first, *others = [Image.fromarray(picture) for picture in pictures]
    buffer = io.BytesIO()
    first.save(buffer, "GIF", save_all=True, append_images=others, loop=0,
               duration=[FRAME_MILLISECONDS] * len(others) + [LAST_MILLISECONDS])  # fmt: skip
    return buffer.getvalue()
