"""Image files as the arrays that a model reads, by Pillow. Files may be untrusted: see `open_image`."""

import os
import warnings
from contextlib import suppress
from math import inf
from pathlib import Path
from typing import get_args

import numpy as np

from tinyvit.backend import expect_memory
from tinyvit.data.dataset import Resample
from tinyvit.validation import require

# Raster formats whose readers start no program and run no script, as Pillow's reader of EPS, PDF and WMF may.
FORMATS = (
    "AVIF", "BMP", "DDS", "DIB", "GIF", "ICO", "JPEG", "JPEG2000", "MPO", "PCX", "PNG", "PPM", "PSD", "QOI", "SGI",
    "TGA", "TIFF", "WEBP",
)  # fmt: skip
ANIMATIONS = ("AVIF", "GIF", "PNG", "WEBP")  # those of which a file may be a video; an MPO's pictures are no frames
RESAMPLE = get_args(Resample)
MAX_THREADS = 8
MAX_TINT = 48  # of 255 between red, green and blue, up to which a picture is grey: yellowed paper, for instance


def read_image(path, channels, size, *, resample="bicubic", crop=1.0, still=False):
    """An image file as uint8 (C, H, W).

    channels  1 for grey (ITU-R 601 luma), 3 for red, green, blue
    size      (H, W), the side of a square, or a function of the image's height and width that returns (H, W)
    resample  one of `RESAMPLE`, all antialiased but "nearest"
    crop      the share of what fits that is cut out of the middle, as timm's crop_pct; None stretches the whole image
    still     whether an animation is refused

    The picture is turned as its EXIF orientation says, laid on white where it is transparent, resized until its
    shorter side fits, and cut out of the middle. Of an animation it is the first frame, unless it is refused.
    Grey values of more than 8 bits are scaled as `eight_bits` says. Colour profiles are not applied.

    Raises ValueError, naming the file, if it is missing, of none of `FORMATS`, cut off, damaged, or larger than Pillow
    takes for safe to unpack.
    """
    size = size if callable(size) else height_width(size)

    def read(image):
        if still and is_animation(image):
            raise ValueError("it is a video, and the model reads single images; give one of its frames")
        if not callable(size):
            # JPEG can be decoded at a half, a quarter or an eighth: here still at least twice as large as needed.
            side = round(2 * max(size) / (crop or 1))
            image.draft(None, (side, side))
        return fit_image(image, channels, size, resample, crop)

    return read_opened(path, read, "an image")


def as_pixels(image, channels, size, resample="bicubic", crop=1.0):
    """A PIL image, or a uint8 array (H, W) or (H, W, C), as `read_image` gives a file: uint8 (C, H, W).

    Raises ValueError for anything else.
    """
    from PIL import Image

    if isinstance(image, np.ndarray):
        image = Image.fromarray(np.ascontiguousarray(image[..., 0] if image.shape[2:] == (1,) else image))
    if not isinstance(image, Image.Image):
        raise ValueError(f"expected a PIL image or a uint8 array, got {type(image).__name__}")
    try:
        return fit_image(image, channels, size, resample, crop)
    except Exception as error:  # the file behind it may be damaged
        raise ValueError(f"the image can't be read: {error or type(error).__name__}") from error


def image_files(folder):
    """The image files in a folder and the folders in it, sorted.

    These are the files with a suffix of one of `FORMATS`; names that begin with a dot are left out, and links to
    folders are not followed.
    """
    from PIL import Image

    suffixes = {suffix for suffix, kind in Image.registered_extensions().items() if kind in FORMATS}

    def fail(error):  # os.walk would skip unreadable folders silently
        raise error

    found = []
    for parent, folders, files in os.walk(folder, onerror=fail):
        folders[:] = [name for name in folders if not name.startswith(".")]
        shown = (Path(parent, name) for name in files if not name.startswith("."))
        found += [path for path in shown if path.suffix.lower() in suffixes]
    return sorted(found)


def height_width(size):
    """A size as (H, W); ValueError unless both are at least 1."""
    height, width = size if isinstance(size, (tuple, list)) else (size, size)
    require(min(height, width) >= 1, "expected an image size of at least 1×1", size)
    return height, width


def check_memory(count, channels, size):
    """Raise ValueError if `count` images are more than this machine's memory holds."""
    height, width = size
    what = f"{count:,} images of {height}×{width} need"
    expect_memory(count * channels * height * width, what, "; take fewer, or a smaller image size")


# -- decoding ---------------------------------------------------------------------------------------------------------


def read_opened(path, read, what):
    """read(image) of a file that Pillow has opened; ValueError, naming the file, if it can't be read as `what` is."""
    try:
        with open(path, "rb") as file:
            return read(open_image(file))
    except Exception as error:  # damaged files make decoders raise errors of every kind
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise ValueError(f"{path} can't be read as {what}: {reason}") from error


def open_image(file):
    """An open file as a Pillow image, not yet decoded. Every untrusted image is opened here.

    Pillow's warnings are ignored from here on: they are about size, which is checked here, or about what doesn't touch
    the pixels, such as damaged EXIF data. Raises ValueError for another format than `FORMATS`, and for more pixels than
    Pillow takes for safe.
    """
    from PIL import Image

    Image.init()
    warnings.filterwarnings("ignore", module=r"PIL\.")
    try:
        image = Image.open(file, formats=[name for name in FORMATS if name in Image.OPEN])
    except Image.UnidentifiedImageError as error:
        raise ValueError(f"expected {', '.join(FORMATS[:-1])} or {FORMATS[-1]}") from error
    limit = Image.MAX_IMAGE_PIXELS or inf
    if image.width * image.height > limit:
        raise ValueError(f"{image.width}×{image.height} are more pixels than the {limit:,} considered safe")
    return image


def is_animation(image):
    """Whether an image that Pillow has opened has several frames that follow one another."""
    return image.format in ANIMATIONS and getattr(image, "is_animated", False)


def fit_image(image, channels, size, resample, crop):
    """A PIL image as uint8 (C, H, W): upright, on white, resized and cut out."""
    require(channels in (1, 3), "images are read with 1 channel (grey) or 3 (colour)", channels)
    image = flat(upright(image))
    size = height_width(size(image.height, image.width) if callable(size) else size)
    if channels == 1:
        small = image.resize((16, 16), RESAMPLE.index("box"))  # in which noise is averaged out, and a pen isn't
        if np.ptp(np.asarray(small), -1).max() > MAX_TINT:
            warnings.warn("an image has colours, and the model reads grey: they are thrown away", stacklevel=2)
        image = image.convert("L")  # CMYK, LAB and the like become grey only by way of RGB
    image = resize_image(image, size, resample, crop)
    return np.ascontiguousarray(np.asarray(image).reshape(*size, channels).transpose(2, 0, 1))


def upright(image):
    """An image turned as its EXIF orientation says; one whose EXIF data are damaged, as it is."""
    from PIL import ImageOps

    image.load()
    with suppress(Exception):
        return ImageOps.exif_transpose(image)
    return image


def resize_image(image, size, resample, crop):
    """The part of a PIL image in the `shown_box`, in the size (H, W)."""
    return image.resize(size[::-1], RESAMPLE.index(resample), shown_box(image.size, size, crop))


def shown_box(image_size, size, crop):
    """The part of an image (left, top, right, bottom) that becomes `size` (H, W); of all of it if crop is None."""
    width, height = image_size
    if crop is None:
        return 0, 0, width, height
    scale = crop * min(height / size[0], width / size[1])  # pixels of the image for one of the result
    half_height, half_width = scale * size[0] / 2, scale * size[1] / 2
    # Where all of a side is shown, rounding must not reach beyond it.
    left, top = max(0.0, width / 2 - half_width), max(0.0, height / 2 - half_height)
    return left, top, min(width, width / 2 + half_width), min(height, height / 2 + half_height)


def flat(image):
    """An image of any mode in RGB, laid on white where it is transparent."""
    from PIL import Image

    if image.mode.partition(";")[0] in ("I", "F"):
        image = Image.fromarray(eight_bits(np.asarray(image)))
    elif image.has_transparency_data:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return image.convert("RGB")


def eight_bits(values):
    """Grey values of 16 bits, 32 bits or floating point as uint8, from black at 0 to white at full scale.

    Full scale is 65,535 for 16-bit integers. The other formats don't say what theirs is: it is the least of 1 (for
    floating point), 255 (likewise), 65,535 that no value exceeds, and the largest value if that is beyond. Negative
    values are black. Raises ValueError for NaN and infinite values.
    """
    scales = (1, 255, 65_535) if values.dtype.kind == "f" else (65_535,)
    largest = float(values.max())
    if not np.isfinite(largest) or not np.isfinite(float(values.min())):
        raise ValueError("it has pixels that are NaN or infinite")
    full = next((scale for scale in scales if largest <= scale), largest)
    return np.rint(values.clip(0, None) * (255 / full)).astype("uint8")
