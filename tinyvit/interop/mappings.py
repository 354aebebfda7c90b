"""Weights as all formats are read into and written from, and the registry of mappings, each of which reads and writes
one architecture in one format.

A mapping is a file of this package that registers itself and is imported in `interop/__init__.py`; nothing else knows
it:

    register(Mapping("huggingface", ("swin",), "swin", read, write, FILES, OPTIONS))
"""

import re
from collections.abc import Callable
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import NamedTuple

from tinyvit.arrays import Array
from tinyvit.data.preprocessing import Preprocessing
from tinyvit.functional.patches import as_pair
from tinyvit.interop.fields import normalisation
from tinyvit.models import ViTConfig
from tinyvit.text import list_names, shorten

MAPPINGS = []
# What config.json calls the model, by format: timm's names begin with the architecture.
KIND_FIELDS = {"huggingface": "model_type", "timm": "architecture"}


class Weights(NamedTuple):
    """A model's weights, with what is needed to build it and to show it an image."""

    config: ViTConfig              # or the configuration of another registered architecture
    state: dict[str, Array]        # by our names, as `model.state_dict()` gives them
    preprocessing: Preprocessing   # its classes are the labels; "0", "1", … where the source has none
    notes: tuple[str, ...] = ()    # what the source doesn't say and is assumed, or has and isn't used, a sentence each

    @property
    def precision(self):
        """The precision of a model with these weights: float64 if any array is of it, else float32."""
        return "float64" if any(array.dtype == "float64" for array in self.state.values()) else "float32"


def weights_of(model, classes=None, mean=None, std=None):
    """The `Weights` of a model: copies of its arrays, and how its images are prepared.

    classes     the names of its classes, in the order of the logits
    mean, std   of each channel or of all, as a share of full light

    What isn't given is that of `model.preprocessing`; if it has none, the classes are "0", "1", …, and mean and std are
    0.5, which a note says. Raises ValueError for numbers of classes and channels that aren't the model's.
    """
    config, prepared = model.config, model.preprocessing or default_preprocessing(model.config)
    notes = getattr(model, "notes", ()) if mean is None and std is None else ()
    if model.preprocessing is None and (mean is None or std is None):
        notes = ("nothing says how images are normalised; mean and std are taken to be 0.5 where they weren't given",)
    said = ("mean", prepared.mean), ("std", prepared.std)
    mean, std = normalisation(said, (mean, std), config.in_chans, "model.preprocessing")
    classes = prepared.classes if classes is None else tuple(classes)
    if classes is prepared.classes and not getattr(config, "num_classes", 0):  # those of the images, not of the model
        classes = ()
    return Weights(config, model.state_dict(), replace(prepared, classes=classes, mean=mean, std=std), notes)


def default_preprocessing(config):
    """The `Preprocessing` of a model that says none: nameless classes, mean and std 0.5."""
    names, half = tuple(map(str, range(getattr(config, "num_classes", 0)))), (0.5,) * config.in_chans
    frames = getattr(config, "frames", None)
    return Preprocessing(names, config.in_chans, as_pair(config.img_size), half, half, frames=frames)


class Mapping(NamedTuple):
    """How the weights of one architecture in one format become ours, and back.

    format         "huggingface", "timm" or "original"
    kinds          what config.json calls these models, as patterns: "vit", or "vit_*"
    architecture   what ours is registered as
    read           (arrays by name, the parsed `files` or None each, some of `options` by name) -> Weights; ValueError
                   for anything else
    write          Weights -> arrays by name, or (these, what goes into each of `files`); ValueError for what the format
                   has no place for
    files          JSON files beside the weights
    options        what `read` may be given where the source doesn't say it
    names          pattern of an array's name by which weights without config.json are recognised; None where these
                   can't be read
    part           pattern of what the names of the arrays that are read begin with, where a folder may hold more
    """

    format: str
    kinds: tuple[str, ...]
    architecture: str
    read: Callable
    write: Callable
    files: tuple[str, ...]
    options: tuple[str, ...]
    names: str | None = None
    part: str = ""


def register(mapping):
    """Make a mapping known."""
    MAPPINGS.append(mapping)


def mapping_of_config(config, path):
    """The mapping for the model that a config.json describes.

    Raises ValueError for a run of tinyvit, for an unknown model, and for anything that isn't such a configuration.
    """
    if {"dataset", "model", "optim"} <= config.keys():
        raise ValueError(f"{path.parent} is a run of tinyvit already; use it as it is")
    format = next((format for format, field in KIND_FIELDS.items() if field in config), None)
    if format is None:
        raise ValueError(f"{path} has neither Hugging Face's model_type nor timm's architecture")
    kind = config[KIND_FIELDS[format]]
    known = [mapping for mapping in MAPPINGS if mapping.format == format]
    for mapping in reversed(known):  # variants of an architecture are registered after it
        if any(fnmatchcase(str(kind), pattern) for pattern in mapping.kinds):
            return mapping
    readable = ", ".join(pattern for mapping in known for pattern in mapping.kinds)
    raise ValueError(f"{path} has {KIND_FIELDS[format]} {shorten(repr(kind))}; tinyvit reads {readable}")


def mapping_of_names(names, source):
    """The mapping whose arrays these names are; ValueError, listing some of them, if there is none."""
    for mapping in MAPPINGS:
        if mapping.names and any(re.match(mapping.names, name) for name in names):
            return mapping
    raise ValueError(
        f"{source} has names of an unknown layout: {list_names(names)}; without a config.json expected those of timm's "
        "ViT (patch_embed.proj.weight) or of the original release (embedding/kernel), without a prefix; for another "
        "model pass its folder, with its config.json"
    )


def mapping_for(format, architecture):
    """The mapping that writes an architecture in a format of `save`; ValueError if there is none."""
    name = "original" if format == "npz" else format
    for mapping in MAPPINGS:
        if (mapping.format, mapping.architecture) == (name, architecture):
            return mapping
    raise ValueError(f"models of the architecture {architecture!r} can't be written in the format {format!r}")
