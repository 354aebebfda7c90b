"""Hugging Face's `preprocessor_config.json`, read and written."""

from math import floor
from typing import Annotated, Any

import numpy as np

from tinyvit.data.images import RESAMPLE
from tinyvit.data.preprocessing import Preprocessing
from tinyvit.functional.patches import as_pair
from tinyvit.interop.fields import MAX_SIDE_PIXELS, Number, check_fields, normalisation
from tinyvit.text import shorten
from tinyvit.validation import Positive, Range

SOURCE = "preprocessor_config.json"
FIELDS = {
    "do_resize": bool, "do_rescale": bool, "do_normalize": bool, "do_center_crop": bool, "offset": bool,
    "resample": Annotated[int, Range(0, len(RESAMPLE) - 1)], "rescale_factor": Positive, "crop_pct": Number,
    "image_mean": Any, "image_std": Any, "size": Any, "crop_size": Any,
}  # fmt: skip
RESCALE_FACTOR = 1 / 255
DEFAULTS = {  # of ViTImageProcessor
    "do_resize": True, "do_rescale": True, "do_normalize": True, "do_center_crop": False, "offset": False,
    "resample": RESAMPLE.index("bilinear"), "rescale_factor": RESCALE_FACTOR, "crop_pct": None,
    "image_mean": 0.5, "image_std": 0.5, "size": None, "crop_size": None,
}  # fmt: skip


def read_processor(layout, preprocessor):
    """All fields of a preprocessor_config.json, parsed or None, as those of a ViTImageProcessor, and notes."""
    said, notes = {}, ()
    if preprocessor is None:
        notes = ("there is no preprocessor_config.json; images are prepared as Transformers does by default",)
    else:
        said = check_fields(preprocessor, FIELDS, SOURCE)
    return layout.prepare(DEFAULTS | layout.processor | said), notes


def processed_size(processor):
    """The (height, width) of the images that an image processor makes; 224×224 where it doesn't say."""
    sides = sides_of(processor["crop_size"] or processor["size"])
    return sides if all(type(side) is int and 0 < side <= MAX_SIDE_PIXELS for side in sides) else (224, 224)


def sides_of(size):
    """The height and width of a size in a preprocessor_config.json, None where it doesn't say them."""
    return (size.get("height"), size.get("width")) if isinstance(size, dict) else (size, size)


def preprocessing_of(classes, processor, config, mean=None, std=None):
    """The Preprocessing that a preprocessor_config.json says, and notes on what can't be done here.

    A mean or a standard deviation that is given replaces the file's.
    """
    # Pixels are multiplied by a factor, and an offset of −1 is added.
    factor = processor["rescale_factor"] if processor["do_rescale"] else 1
    offset, said = processor["offset"] and processor["do_rescale"], []
    for name, neutral in (("image_mean", 0.0), ("image_std", 1.0)):
        value = processor[name] if processor["do_normalize"] else neutral
        if factor != RESCALE_FACTOR or offset:  # mean and std are for pixels of another scale
            shift = offset and name == "image_mean"
            value = [(number + shift) / (255 * factor) for number in np.ravel(value).tolist()]
        said.append((name, value))
    mean, std = normalisation(said, (mean, std), config.in_chans, SOURCE)
    size, resample = as_pair(config.img_size), RESAMPLE[processor["resample"]]
    crop, notes = crop_fraction(processor, size)
    frames = getattr(config, "frames", None)
    return Preprocessing(classes, config.in_chans, size, mean, std, resample=resample, crop=crop, frames=frames), notes


def crop_fraction(processor, img_size):
    """The share of an image that is cut out of its middle, None to stretch all of it, and notes on what differs."""
    size = processor["size"]
    if not processor["do_resize"]:
        return None, ("images are resized, though preprocessor_config.json says that they are not",)
    if not processor["do_center_crop"]:
        return None, size_notes(size, img_size)
    shortest = size.get("shortest_edge") if isinstance(size, dict) else None
    side, is_square = min(img_size), len(set(img_size)) == 1
    # Of another shape than a square, which share of an image fits depends on the image's shape, too.
    if not is_square or not isinstance(shortest, int) or not side <= shortest <= MAX_SIDE_PIXELS:
        return None, (f"images are stretched to the model's size, not resized to {shorten(repr(size))} and cut out",)
    share = processor["crop_pct"]
    if share is None or not 0 < share <= 1 or not shortest <= side / share < shortest + 1:
        share = side / shortest
        if floor(side / share) < shortest:  # the quotient was rounded up
            share = float(np.nextafter(share, 0))
    return share, size_notes(processor["crop_size"], img_size)


def size_notes(size, img_size):
    """A note if an image processor makes images of a size that the model doesn't read."""
    if size is None or sides_of(size) == img_size:
        return ()
    height, width = img_size
    said = shorten(repr(size))
    return (f"images are made {height}×{width}, which the model reads; preprocessor_config.json says {said}",)


def processor_fields(weights):
    """The preprocessor_config.json of these weights, as a dict.

    ViTImageProcessor stretches images; BitImageProcessor cuts them out of the middle. Raises ValueError for
    anything else.
    """
    prepared = weights.preprocessing
    height, width = prepared.img_size
    preprocessor = {name: value for name, value in DEFAULTS.items() if value is not None} | {
        "image_processor_type": "ViTImageProcessor", "do_convert_rgb": prepared.channels == 3,
        "size": {"height": height, "width": width}, "resample": RESAMPLE.index(prepared.resample),
        "image_mean": list(prepared.mean), "image_std": list(prepared.std),
    }  # fmt: skip
    if prepared.crop is None:
        return preprocessor
    if height != width:
        raise ValueError(
            f"Hugging Face's image processors can't cut {height}×{width} pixels out of the middle of an image; "
            "with crop null in preprocessing.json images are stretched, which they can do"
        )
    return preprocessor | {
        "image_processor_type": "BitImageProcessor", "size": {"shortest_edge": floor(height / prepared.crop)},
        "do_center_crop": True, "crop_size": {"height": height, "width": width}, "crop_pct": prepared.crop,
    }  # fmt: skip
