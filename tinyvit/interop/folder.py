"""Files of weights: which of a folder they are, of which kind each is, and the JSON beside them."""

import json
import zipfile
from contextlib import suppress
from pathlib import Path
from shlex import quote

import numpy as np

from tinyvit.backend import expect_memory
from tinyvit.files import read_text
from tinyvit.text import list_names, shorten

CONFIG = "config.json"
INDEX = "model.safetensors.index.json"
PICKLES = (".bin", ".pt", ".pth", ".ckpt")
CONVERT_COMMAND = (
    "python -c \"import sys, torch; from safetensors.torch import save_file; w = torch.load(sys.argv[1], 'cpu', "
    "weights_only=True); w = w.get('model', w.get('state_dict', w)); "
    "save_file({k: v.contiguous().clone() for k, v in w.items()}, sys.argv[2])\""
)
EXPECTED_SOURCES = "expected a .safetensors, the original's .npz, or a folder with config.json and model.safetensors"


def file_in(folder, name):
    """The path of the file `name` in a folder; ValueError for a name with a path in it, and for anything but a file."""
    path = Path(folder) / name
    if path.name != name:
        raise ValueError(f"{folder} names a file that isn't in it: {shorten(repr(name))}")
    if not path.is_file():
        raise ValueError(f"{path} is {'not a file' if path.exists() else 'missing'}")
    return path


def read_json(folder, name):
    """The JSON object in the file `name` of a folder; None if there is no such file, ValueError for other content."""
    path = Path(folder) / name
    if not (path.is_symlink() or path.exists()):
        return None
    text = read_text(path)
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is damaged or not JSON: {shorten(error)}") from error
    if not isinstance(value, dict):
        raise ValueError(f"{path} holds JSON of another kind: expected an object {{…}}, got {shorten(value)}")
    return value


def weight_files(folder):
    """The files with the weights in a folder; ValueError if there are none, or several without an index."""
    names = sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))
    if "model.safetensors" in names:
        return [file_in(folder, "model.safetensors")]
    if INDEX in names:
        shards = read_json(folder, INDEX).get("weight_map")
        if not isinstance(shards, dict) or not shards:
            raise ValueError(f"{folder / INDEX} is damaged: its weight_map says {shorten(shards)}; expected a file for "
                             "each array")  # fmt: skip
        return [file_in(folder, name) for name in dict.fromkeys(map(str, shards.values()))]
    found = [name for name in names if name.endswith((".safetensors", ".npz"))]
    if len(found) > 1:
        raise ValueError(f"{folder} holds several files with weights ({list_names(found)}); give one of them")
    for name in found or [name for name in names if name.endswith(PICKLES)]:
        return [file_in(folder, name)]
    raise ValueError(f"{folder} holds no weights ({list_names(names) or 'it is empty'}); {EXPECTED_SOURCES}")


def file_kind(path):
    """ "safetensors" or "npz" by a file's first bytes; ValueError, saying what the file is, for everything else."""
    with path.open("rb") as file:
        start = file.read(512)
    if start[5:9] == b"\0\0\0{":  # after the length of the header, which is far below 2⁴⁰
        return "safetensors"
    if start.startswith(b"PK\3\4"):  # both PyTorch's files and .npz are zips
        names = []
        with suppress(Exception), zipfile.ZipFile(path) as archive:  # of a damaged one its reader says what is wrong
            names = archive.namelist()
        if not any(name.endswith("data.pkl") for name in names):
            return "npz"
    elif not (start[:1] == b"\x80" and start[1:2] in b"\2\3\4\5"):
        raise ValueError(f"{path} is {guess_content(start)}; {EXPECTED_SOURCES}")
    files = f"{quote(str(path))} {quote(str(path.with_name('model.safetensors')))}"
    raise ValueError(
        f"{path} is a pickle, as PyTorch's .bin, .pt and .pth are: to read it runs whatever code is in it. "
        f"Where you have PyTorch, convert it: {CONVERT_COMMAND} {files}"
    )


def guess_content(start):
    """A guess at what a file with these first bytes is."""
    text = start.lstrip().lower()
    if text.startswith((b"<!doctype html", b"<html")):
        return "a web page, saved in place of the weights; download the file itself"
    if text.startswith(b"version https://git-lfs"):
        return "a git-LFS pointer, not the file it stands for; fetch that by git lfs pull"
    return "of an unknown format, cut off or damaged" if start else "empty"


def read_npz(path):
    """Arrays by name of a zip of `.npy` files.

    Raises ValueError, naming the file, if it is cut off or damaged, holds Python objects, or unpacks to more than this
    machine's memory.
    """
    try:
        with path.open("rb") as file, np.load(file) as archive:
            expect_memory(sum(member.file_size for member in archive.zip.infolist()), "it unpacks to")
            return {name: np.asarray(array) for name, array in archive.items()}  # a member without a header is bytes
    except OSError:
        raise
    except Exception as error:  # zlib, struct, the dtype's parser and others raise errors of every kind
        what = shorten(error or type(error).__name__, 250)
        raise ValueError(f"{path} is cut off, damaged or not an .npz of arrays: {what}") from error
