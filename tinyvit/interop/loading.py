"""Weights out of files and folders of timm, of Hugging Face and of the original release."""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Any

from tinyvit.files import expanded
from tinyvit.interop import huggingface, npz_file, original, safetensors_file, timm
from tinyvit.interop.architectures import layout_of
from tinyvit.interop.folder import CONFIG, PREPROCESSOR, origin_of, read_if_there, weight_files
from tinyvit.interop.foreign import WANTED, kind_of
from tinyvit.interop.stored import Stored, expect_finite, listed, of_shapes, read_floats
from tinyvit.interop.strict_json import short

READERS = {"safetensors": safetensors_file.stored_arrays, "npz": npz_file.stored_arrays}
# What a reader of a layout raises for a config.json whose values are of other types than it expects.
OF_WRONG_TYPES = (TypeError, KeyError, AttributeError, IndexError, OverflowError, ZeroDivisionError, RecursionError)


@dataclass(frozen=True)
class Source:
    """What weights there are and whose they are; no number was read.

    path           as it was given: a file or a folder
    files          that hold the weights
    format         "timm", "huggingface" or "original"
    stored         the arrays by the names that they have there
    about          the parsed config.json, or None
    preprocessor   the parsed preprocessor_config.json, or None
    """

    path: Path
    files: tuple[Path, ...]
    format: str
    stored: dict[str, Stored]
    about: dict[str, Any] | None = None
    preprocessor: dict[str, Any] | None = None

    def origin(self):
        """What tells these weights from others, as JSON has it: their format, and the name, size and SHA256 of each
        file."""
        files = {}
        for file in self.files:
            with file.open("rb") as stream:
                digest = hashlib.file_digest(stream, "sha256").hexdigest()
            files[file.name] = {"bytes": file.stat().st_size, "sha256": digest}
        return {"format": self.format, "source": self.path.resolve().name, "files": files}

    def read(self, *, num_heads=None, img_size=None, mean=None, std=None):
        """These as `Weights`; see `load`."""
        if self.format != "timm" and num_heads is not None:
            raise ValueError(f"{self.path} says itself how many heads there are; leave out num_heads")
        if self.format == "huggingface" and img_size is not None:
            raise ValueError(f"{self.path / CONFIG} says itself how large images are; leave out img_size")
        given = {"num_heads": num_heads, "img_size": img_size, "mean": mean, "std": std}
        self.laid_out(of_shapes(self.stored), given)  # what doesn't fit is told before any number is read
        tensors = read_floats(self.stored, self.path)
        weights = self.laid_out(tensors, given)
        expect_finite(weights.state, tensors, self.path)
        return weights

    def laid_out(self, tensors, given):
        """Arrays by the names of this source as `Weights`; `given` are the arguments of `read` by name."""
        normalised = {"mean": given["mean"], "std": given["std"]}
        try:
            if self.format == "timm":
                return timm.read(tensors, self.about, **given)
            if self.format == "huggingface":
                return huggingface.read(tensors, self.about, self.preprocessor, **normalised)
            return original.read(tensors, img_size=given["img_size"], **normalised)
        except ValueError as error:
            raise ValueError(f"{self.path}: {error}") from error
        except OF_WRONG_TYPES as error:
            what = f"{type(error).__name__}: {short(error)}"
            raise ValueError(f"{self.path}: {CONFIG} says what can't be: {what}") from error


def open_source(path):
    """The `Source` at a path, by headers and configurations alone.

    Raises ValueError, naming the file, if it is missing, cut off, damaged, of another format or another architecture,
    if a name leads out of the folder, and if config.json is not of what the weights are.
    """
    path = expanded(path)
    if not path.exists():
        raise ValueError(f"{path} doesn't exist; {how_to_fetch(path) or WANTED}")
    if not path.is_dir():
        if not path.is_file():
            raise ValueError(f"{path} is no file; {WANTED}")
        stored = READERS[kind_of(path)](path)
        layout = layout_of(stored, path)
        if layout == "huggingface":
            raise ValueError(f"{path} has Hugging Face's names, which don't say how many heads there are and what its "
                             f"activation is; give its folder, with the {CONFIG} that belongs to it")  # fmt: skip
        return Source(path, (path,), layout, stored)
    about = read_if_there(path, CONFIG)
    origin = None if about is None else origin_of(about, path / CONFIG)
    shards, files = weight_files(path)
    stored = stored_in(files, shards)
    layout = layout_of(stored, path)
    if origin is None and layout == "huggingface":
        raise ValueError(f"{path} has no {CONFIG}, without which Hugging Face's weights can't be read")
    if origin is not None and layout != origin:
        raise ValueError(f"{path / CONFIG} is of the kind {origin}, but the weights have the names of {layout}")
    preprocessor = read_if_there(path, PREPROCESSOR) if layout == "huggingface" else None
    return Source(path, tuple(files), layout, stored, about, preprocessor)


def how_to_fetch(path):
    """What to do about a path that looks like OWNER/NAME, as Hugging Face's hub calls models; None for any other."""
    if path.is_absolute() or len(path.parts) != 2 or ".." in path.parts or path.parent.exists() or (
            path.suffix[1:] in READERS):  # fmt: skip
        return None
    fetch = f"hf download {quote(path.as_posix())} --local-dir {quote(path.name)}"
    return f"if it is meant as a name on Hugging Face's hub, nothing is downloaded from there: {fetch}, and import that"


def stored_in(files, shards):
    """The `Stored` arrays of all files; ValueError unless each file holds what the index says, and no other does."""
    found, where = {}, {}
    for file in files:
        stored = READERS[kind_of(file)](file)
        twice = [name for name in stored if name in found]
        if twice:
            raise ValueError(f"{file} holds {listed(twice)}, which {where[twice[0]]} does too")
        found |= stored
        where |= dict.fromkeys(stored, file.name)
    if shards is not None:
        other = [name for name in shards.keys() | where.keys() if shards.get(name) != where.get(name)]
        if other:
            raise ValueError(f"{files[0].parent}: the index of its files contradicts them in {listed(sorted(other))}")
    return found


def load(path, *, num_heads=None, img_size=None, mean=None, std=None):
    """The `Weights` in a file or a folder: timm's `.safetensors`, or a folder with it and timm's `config.json`; Hugging
    Face's folder of `config.json`, `model.safetensors` (or several, with their index) and `preprocessor_config.json`;
    the original's `.npz`.

    num_heads, img_size   where the source doesn't say how many heads there are, and how large its images
    mean, std             of each channel, or one number for all, in place of what the source says of them

    bfloat16 and float16 become float32, exactly; float64 stays. What lies in the file as it is needed is mapped, not
    read: arrays may be read-only views of the file, which has to stay as it is.

    Nothing in a file is ever run: pickles are refused. Raises ValueError, naming the file, for whatever can't be read,
    doesn't fit together, or isn't a ViT, saying what it is where that can be told.
    """
    return open_source(path).read(num_heads=num_heads, img_size=img_size, mean=mean, std=std)
