"""Finds a folder's files of weights; no link or name leads out of it."""

import os
from pathlib import Path

from tinyvit.interop.file_kinds import WANTED, kind_of
from tinyvit.interop.lazy_arrays import listed
from tinyvit.interop.strict_json import read_object
from tinyvit.text import short

CONFIG = "config.json"
INDEX = "model.safetensors.index.json"
OTHERS = (".bin", ".pt", ".pth", ".h5", ".msgpack", ".ckpt", ".onnx", ".gguf", ".pb", ".index")  # weights of others


def inside(folder, name):
    """The path of the file `name` in a folder.

    Raises ValueError for a name with a path or control characters in it, for a link that leads out of the folder or
    nowhere, and for anything but a file. Links into the folder `blobs` beside `snapshots` are followed: there Hugging
    Face's cache keeps its files.
    """
    folder = Path(folder)
    if not isinstance(name, str) or name in ("", ".", "..") or {"/", "\\", ":", "\0"} & set(name):
        raise ValueError(f"{folder} names a file that isn't in it: {short(repr(name))}")
    if not name.isprintable():  # messages contain it
        raise ValueError(f"{folder} has a name of a file that can't be shown: {short(repr(name))}")
    # Path.resolve raises RuntimeError, in some versions of Python, for a link to itself.
    path, real, root = folder / name, Path(os.path.realpath(folder / name)), Path(os.path.realpath(folder))
    allowed = [root, root.parent.parent / "blobs"] if root.parent.name == "snapshots" else [root]
    if not any(real.is_relative_to(place) for place in allowed):
        raise ValueError(f"{path} leads out of its folder, to {real}; give that file itself, if it is meant")
    if path.is_symlink() and not path.exists():
        raise ValueError(f"{path} is a link that leads nowhere")
    if not path.is_file():
        raise ValueError(f"{path} is {'not a file' if path.exists() else 'missing'}")
    return path


def read_if_there(folder, name):
    """The JSON object in the file `name` of a folder; None if there is no such file."""
    path = Path(folder) / name
    return read_object(inside(folder, name)) if path.is_symlink() or path.exists() else None


def weight_files(folder):
    """({array name: the file that must hold it} or None without an index, the files with the weights)."""
    folder = Path(folder)
    names = sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))
    if "model.safetensors" in names:
        return None, [inside(folder, "model.safetensors")]
    if INDEX in names:
        shards = shards_of(folder)
        return shards, [inside(folder, name) for name in sorted(set(shards.values()))]
    found = [name for name in names if name.endswith((".safetensors", ".npz"))]
    if len(found) == 1:
        return None, [inside(folder, found[0])]
    if found:
        raise ValueError(f"{folder} holds several files with weights ({listed(found)}); give one of them")
    for name in names:
        if name.endswith(OTHERS):
            kind_of(inside(folder, name))  # raises, saying what it is and what to do
            return None, [inside(folder, name)]
    raise ValueError(f"{folder} holds no weights ({listed(names) or 'it is empty'}); {WANTED}")


def shards_of(folder):
    """{array name: file name} of weights in several files, from their index."""
    index = inside(folder, INDEX)
    shards = read_object(index).get("weight_map")
    if not isinstance(shards, dict) or not shards:
        raise ValueError(f"{index} is damaged: its weight_map says {short(shards)}; expected a file for each array")
    files = [name for name in shards.values() if isinstance(name, str)]
    if len(files) < len(shards):
        raise ValueError(f"{index} is damaged: its weight_map has something other than names of files")
    for name in set(files):
        inside(folder, name)
    return shards
