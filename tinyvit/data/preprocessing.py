"""How images become a trained model's input, and the names of its classes."""

import json
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from tinyvit.arrays import each_image
from tinyvit.backend import to_numpy
from tinyvit.data.dataset import Resample, normalise
from tinyvit.text import shorten
from tinyvit.validation import Finite, Positive, PositiveInt, PositiveShare, require, validate


@dataclass(frozen=True)
class Preprocessing:
    """How an image becomes the model's input, and the names of the classes of its output.

    classes    names, in the order of the logits; () for a model without a head
    channels   of the model's images
    img_size   (H, W)
    mean, std  of each channel, as a fraction of `scale`
    scale      what a fully lit pixel was in the data set: 255 for bytes, 16 for the digits
    resample   how image files are resized to img_size: nearest, bilinear, bicubic, lanczos, box or hamming
    crop       what is cut out of the middle: this share of the image after its shorter side was made to fit, 1 for all
               that fits; None cuts nothing and stretches the image to img_size
    frames     of the videos that the model reads; None for images
    size_of    where images keep their own size, the function of height and width that says to which they are resized;
               the model's configuration has it, and not the JSON text

    Raises ValueError for what is of another type or doesn't fit together.
    """

    classes: tuple[Any, ...]
    channels: PositiveInt
    img_size: tuple[PositiveInt, PositiveInt]
    mean: tuple[Finite, ...]
    std: tuple[Positive, ...]
    scale: Positive = 255.0
    resample: Resample = "bicubic"
    crop: PositiveShare | None = 1.0
    frames: PositiveInt | None = None
    size_of: Any = None

    def __post_init__(self):
        validate(self)
        named = all(isinstance(name, str) for name in self.classes) and len(set(self.classes)) == len(self.classes)
        require(named, "expected names of classes that are text and all different", self.classes)
        fits = len(self.mean) == len(self.std) == self.channels
        require(fits, f"expected a mean and a std for each of {self.channels} channels", (self.mean, self.std))

    @classmethod
    def from_dataset(cls, dataset):
        """The preprocessing of a `Dataset`."""
        channels, *frames, height, width = dataset.images[0].shape
        named = {"frames": frames[0]} if frames else {}
        return cls(tuple(dataset.classes), channels, (height, width), dataset.mean, dataset.std, dataset.scale, **named)

    @classmethod
    def from_json(cls, text, source):
        """Parse what `to_json` wrote; ValueError, naming `source`, for any other text."""
        try:
            return cls(**json.loads(text))
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise ValueError(f"{source} doesn't say how images are prepared: {shorten(error, 250)}") from error

    def to_json(self):
        """This as JSON text."""
        values = asdict(replace(self, size_of=None))
        del values["size_of"]
        return json.dumps(values, indent=2, allow_nan=False) + "\n"

    @property
    def shape(self):
        """(C, H, W) of the images, (C, T, H, W) of the videos."""
        return (self.channels, *(() if self.frames is None else (self.frames,)), *self.img_size)

    def read(self, paths, threads=None):
        """Images or videos by `read_all`: a list of uint8 arrays of this `shape`, with the ValueError of each that
        can't be read, such as a video where images are read."""
        from tinyvit.data.videos import read_all

        return read_all(paths, threads, **self.options, **({"still": True} if self.frames is None else {}))

    @property
    def options(self):
        """The arguments of `read_image` and `read_video` besides a path."""
        size = self.size_of or self.img_size
        options = dict(channels=self.channels, size=size, resample=self.resample, crop=self.crop)
        return options if self.frames is None else options | {"frames": self.frames}

    def pixels(self, images):
        """Images as Pillow and NumPy have them, as uint8 (B, C, H, W): made grey or coloured, resized and cut out as
        `read` does it with files.

        images   a PIL image; a uint8 array (H, W), grey, or (H, W, C) with C of 1 to 4, the last of 2 or 4 being alpha;
                 a list of these, of any sizes; or a uint8 array (B, H, W, C) or (B, C, H, W)

        A model of videos takes one as a list of such frames or an array (T, H, W) or (T, H, W, C), several as a list of
        these or an array (B, T, H, W, C) or (B, C, T, H, W): uint8 (B, C, T, H, W) is returned.

        A uint8 array is of 0 to 255. Raises ValueError for anything else.
        """
        from tinyvit.data.images import as_pixels
        from tinyvit.data.videos import as_video

        what = "images" if self.frames is None else "videos"
        if hasattr(images, "dtype"):
            images = to_numpy(images)
            if images.dtype != np.uint8 or not images.size:
                raise ValueError(
                    f"expected {what} of 0 to 255 as uint8, got {images.dtype} {images.shape}; what is normalised "
                    "already is one floating-point array (B, C, H, W), and is not prepared"
                )
            if images.shape[1:] == self.shape:
                return images
            if images.ndim == 4 and self.frames is None:
                images = list(images if is_image(images[0]) else images.transpose(0, 2, 3, 1))
        elif not images or (self.frames is not None and not isinstance(images, (list, tuple))):
            raise ValueError(f"expected {what} as a list or an array, got {shorten(repr(images))}")
        if self.frames is not None:
            videos = [images] if is_image(images[0]) else images
            return np.stack([as_video(video, **self.options) for video in videos])
        if isinstance(images, (list, tuple)):
            return self.batch([pixels for image in images for pixels in self.pixels(image)])
        if not is_image(images):
            raise ValueError(
                "expected an image (H, W) or (H, W, C) as uint8, a list of these, or an array (B, H, W, C) or "
                f"(B, {self.channels}, H, W), got {images.shape}"
            )
        return as_pixels(images, **self.options)[None]

    def batch(self, images):
        """A list of images of this `shape` as one array; as objects (B,) where they keep their own sizes."""
        return np.stack(images) if self.size_of is None else np.fromiter(images, object, len(images))

    def __call__(self, images, dtype="float32"):
        """Images of 0 to 255, uint8 (B, C, H, W), or videos (B, C, T, H, W), as the model sees them.

        For a data set of bytes this is `Dataset.normalise`, bit for bit; for one of another scale the pixels are
        brought to that scale first, not rounded.
        """
        if images.dtype.kind == "O":
            return each_image(partial(self, dtype=dtype), images)
        expected = self.shape if self.size_of is None else (self.channels, *self.size_of(*images.shape[-2:]))
        if images.dtype != np.uint8 or images.shape[1:] != expected:
            raise ValueError(f"expected uint8 images (B, {', '.join(map(str, expected))}), got {images.dtype} "
                             f"{images.shape}")  # fmt: skip
        if self.scale != 255:
            images = images.astype(dtype) * (self.scale / 255)
        return normalise(images, self.mean, self.std, self.scale, dtype)


def is_image(x):
    """Whether this is one image and not several: not a list, nor an array of another shape than (H, W) or (H, W, C)."""
    shape = getattr(x, "shape", (1, 1))
    return not isinstance(x, (list, tuple)) and (len(shape) == 2 or (len(shape) == 3 and shape[-1] in (1, 2, 3, 4)))
