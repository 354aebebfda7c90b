"""Weights into files and folders that timm, Transformers, onnxruntime and the original release's code read."""

import json
from pathlib import Path

import numpy as np

from tinyvit.backend import to_numpy
from tinyvit.files import making
from tinyvit.interop import huggingface, original, timm
from tinyvit.interop.check import check_weights
from tinyvit.interop.folder import CONFIG, PREPROCESSOR
from tinyvit.interop.onnx_export import write_onnx
from tinyvit.tensors import write_tensors

MODEL = "model.safetensors"
SUFFIXES = {"npz": ".npz", "onnx": ".onnx"}  # the other formats are folders


def save(weights, path, format):
    """Write `Weights` to `path`, whole or not at all.

    "huggingface"   a folder that `ViTForImageClassification.from_pretrained` and `AutoImageProcessor` read
    "timm"          a folder that `timm.create_model("local-dir:PATH", pretrained=True)` reads
    "npz"           a file of the original release's kind
    "onnx"          an ONNX graph; above 2 GB its numbers are in PATH.data beside it

    Raises ValueError for an unknown format, for a state or a preprocessing that doesn't fit the configuration, for
    numbers that are NaN or infinite, for what the format has no place for, and if there is something at `path` already.
    """
    if not isinstance(format, str) or format not in WRITERS:
        raise ValueError(f"unknown format {format!r}; expected one of {', '.join(WRITERS)}")
    check_path(path, format)
    weights = weights._replace(state={name: to_numpy(array) for name, array in weights.state.items()})
    check_weights(weights)
    with making(path) as place:
        WRITERS[format](weights, place)


def check_path(path, format):
    """Raise ValueError for a path that doesn't end as files of this format do, or ends so and is to be a folder."""
    path, suffix = Path(path), SUFFIXES.get(format)
    if suffix and path.suffix.lower() != suffix:
        raise ValueError(f"expected a file that ends in {suffix}, got {path}")
    if not suffix and path.suffix.lower() in (".safetensors", *SUFFIXES.values()):
        raise ValueError(f"the format {format} is a folder; expected a name for one, got {path}")


def write_timm(weights, place):
    tensors, about = timm.write(weights)
    place.mkdir()
    write_json(place / CONFIG, about)
    write_tensors(place / MODEL, tensors)


def write_huggingface(weights, place):
    tensors, about, preprocessor = huggingface.write(weights)
    place.mkdir()
    write_json(place / CONFIG, about)
    write_json(place / PREPROCESSOR, preprocessor)
    write_tensors(place / MODEL, tensors)


def write_npz(weights, place):
    tensors = original.write(weights)
    with place.open("wb") as file:
        np.savez(file, **tensors)


def write_json(path, content):
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")


WRITERS = {"huggingface": write_huggingface, "timm": write_timm, "npz": write_npz, "onnx": write_onnx}
