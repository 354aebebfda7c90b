"""Weights into files and folders that timm, Transformers, onnxruntime and the original release's code read."""

import json
from pathlib import Path

import numpy as np

from tinyvit.backend import to_numpy
from tinyvit.files import create
from tinyvit.interop.mappings import Weights, default_preprocessing, mapping_for, weights_of
from tinyvit.interop.names import check_weights
from tinyvit.interop.onnx_export import write_onnx
from tinyvit.models import architecture_name
from tinyvit.tensors import write_tensors

FORMATS = {"huggingface": None, "timm": None, "npz": ".npz", "onnx": ".onnx"}  # the ending of a file; None for a folder


def save(weights, path, format):
    """Write a model or `Weights` to `path`, completely or not at all.

    "huggingface"   a folder that `ViTForImageClassification.from_pretrained` and `AutoImageProcessor` read
    "timm"          a folder that `timm.create_model("local-dir:PATH", pretrained=True)` reads
    "npz"           a file of the original release's kind
    "onnx"          an ONNX graph; above 2 GB its numbers are in PATH.data beside it

    Raises ValueError for an unknown format, for a state or a preprocessing that doesn't fit the configuration, for
    numbers that are NaN or infinite, for what the format has no place for, and if there is something at `path` already.
    """
    if not isinstance(format, str) or format not in FORMATS:
        raise ValueError(f"unknown format {format!r}; expected one of {', '.join(FORMATS)}")
    check_path(path, format)
    weights = weights if isinstance(weights, Weights) else weights_of(weights)
    if weights.preprocessing is None:
        weights = weights._replace(preprocessing=default_preprocessing(weights.config))
    weights = weights._replace(state={name: to_numpy(array) for name, array in weights.state.items()})
    check_weights(weights)
    with create(path) as place:
        if format == "onnx":
            write_onnx(weights, place)
            return
        mapping = mapping_for(format, architecture_name(weights.config))
        written = mapping.write(weights)
        if not mapping.files:
            with place.open("wb") as file:
                np.savez(file, **written)
            return
        tensors, *about = written
        place.mkdir()
        for name, content in zip(mapping.files, about, strict=True):
            text = json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False)
            (place / name).write_text(text + "\n", encoding="utf-8")
        write_tensors(place / "model.safetensors", tensors)


def check_path(path, format):
    """Raise ValueError for a path that doesn't end as files of this format do, or that ends so and is for a folder."""
    path, suffix = Path(path), FORMATS[format]
    if suffix and path.suffix.lower() != suffix:
        raise ValueError(f"expected a file that ends in {suffix}, got {path}")
    if not suffix and path.suffix.lower() in (".safetensors", ".npz", ".onnx"):
        raise ValueError(f"the format {format} is a folder; expected a name for one, got {path}")
