"""Weights out of files and folders of timm, of Hugging Face and of the original release."""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Any

from tinyvit.arrays import Array
from tinyvit.backend import expect_memory
from tinyvit.files import entry, expand_path
from tinyvit.interop.folder import CONFIG, EXPECTED_SOURCES, file_kind, read_json, read_npz, weight_files
from tinyvit.interop.mappings import Mapping, mapping_of_config, mapping_of_names
from tinyvit.interop.names import expect_finite
from tinyvit.tensors import map_tensors
from tinyvit.text import printable

READERS = {"safetensors": map_tensors, "npz": read_npz}
# Ends of names of counters, and of tables that follow from a shape: no model needs them.
IGNORED_NAMES = re.compile(r".*(num_batches_tracked|relative_position_index|attn_mask|position_ids)")


@dataclass(frozen=True)
class Source:
    """Weights that were found, and the mapping that reads them.

    path      as it was given: a file or a folder
    files     that hold the weights
    mapping   `mapping.format` is "timm", "huggingface" or "original"
    arrays    by the names that they have there; of a .safetensors nothing was read
    about     the parsed JSON files of the mapping, None for each that is missing
    """

    path: Path
    files: tuple[Path, ...]
    mapping: Mapping
    arrays: dict[str, Array]
    about: tuple[dict[str, Any] | None, ...]

    def origin(self):
        """The identity of these weights, for JSON: their format, and the name, size and SHA256 of each file."""
        files = {file.name: entry(file) for file in self.files}
        return {"format": self.mapping.format, "source": os.path.basename(os.path.realpath(self.path)), "files": files}

    def read(self, **options):
        """These as `Weights`; the options are those of `load`."""
        given = {name: value for name, value in options.items() if value is not None}
        unused = [name for name in given if name not in self.mapping.options]
        if unused:
            raise ValueError(f"{self.path} already says {' and '.join(unused)}; leave out {', '.join(unused)}")
        arrays = {name: array for name, array in self.arrays.items() if not IGNORED_NAMES.fullmatch(name)}
        inside = {name: found.end() for name in arrays if (found := re.match(self.mapping.part, name))}
        arrays = {name[end:]: arrays[name] for name, end in inside.items()} or arrays
        halves = sum(array.nbytes for array in arrays.values() if array.itemsize == 2)
        expect_memory(2 * halves, f"{self.path} as float32 needs")
        try:
            weights = self.mapping.read(arrays, *self.about, **given)
        except (ValueError, TypeError, IndexError) as error:  # the last two where an array has too few dimensions
            raise ValueError(f"{self.path}: {error}") from error
        expect_finite(weights.state, f"{self.path} is damaged, or its training diverged: it")
        return weights


def open_source(path):
    """The `Source` at a path.

    Raises ValueError, naming the file, if it is missing, cut off, damaged, of an unknown format or architecture, if a
    name leads out of the folder, and if config.json is not of what the weights are.
    """
    path = expand_path(path)
    if not path.exists():
        raise ValueError(f"{printable(path)} doesn't exist; {download_advice(path) or EXPECTED_SOURCES}")
    if not (path.is_dir() or path.is_file()):
        raise ValueError(f"{printable(path)} is not a file; {EXPECTED_SOURCES}")
    config = read_json(path, CONFIG)
    stated = None if config is None else mapping_of_config(config, path / CONFIG)
    files, arrays = weight_files(path) if path.is_dir() else [path], {}
    for file in files:
        arrays |= READERS[file_kind(file)](file)
    mapping = stated or mapping_of_names(arrays, path)
    return Source(path, tuple(files), mapping, arrays, tuple(read_json(path, name) for name in mapping.files))


def download_advice(path):
    """Advice for a path that looks like a model's name OWNER/NAME on Hugging Face's hub; None for any other path."""
    if len(path.parts) != 2 or path.parent.exists() or path.suffix[1:] in READERS:
        return None
    fetch = f"hf download {quote(path.as_posix())} --local-dir {quote(path.name)}"
    return f"models of Hugging Face's hub are not downloaded: {fetch}, and give that folder"


def load(path, *, num_heads=None, img_size=None, mean=None, std=None):
    """The `Weights` in a file or a folder: timm's `.safetensors`, or a folder with it and timm's `config.json`; Hugging
    Face's folder of `config.json`, `model.safetensors` (or several, with their index) and `preprocessor_config.json`;
    the original's `.npz`.

    num_heads, img_size   where the source doesn't say how many heads there are, and how large its images
    mean, std             of each channel, or one number for all, in place of the source's

    bfloat16 and float16 become float32, exactly; float64 stays. Arrays of a .safetensors that need no conversion are
    read-only views of the mapped file, which must stay as it is.

    Nothing in a file is ever run: pickles are refused. Raises ValueError, naming the file, for what can't be read,
    doesn't fit together, or has another architecture's names.
    """
    return open_source(path).read(num_heads=num_heads, img_size=img_size, mean=mean, std=std)
