"""Weights as all formats are read into and written from, and the registry of mappings, each of which reads and writes
one architecture in one format.

A mapping is a file of this package that registers itself and is imported in `interop/__init__.py`; nothing else knows
it:

    register(Mapping("huggingface", ("swin",), "swin", read, write, FILES, OPTIONS))
"""

import re
from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import NamedTuple

from tinyvit.arrays import Array
from tinyvit.data.preprocessing import Preprocessing
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
    """

    format: str
    kinds: tuple[str, ...]
    architecture: str
    read: Callable
    write: Callable
    files: tuple[str, ...]
    options: tuple[str, ...]
    names: str | None = None


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
