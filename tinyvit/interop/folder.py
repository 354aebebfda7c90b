"""Finds and reads the files in a folder of weights."""

import json
from pathlib import Path

from tinyvit.interop.arrays import listed
from tinyvit.interop.file_kinds import WANTED, kind_of
from tinyvit.text import short

CONFIG = "config.json"
INDEX = "model.safetensors.index.json"
OTHERS = (".bin", ".pt", ".pth", ".h5", ".msgpack", ".ckpt", ".onnx", ".gguf", ".pb", ".index")  # weights of others
LARGEST = 1 << 24  # bytes of JSON; the names of 21,000 classes take one sixteenth of it


def inside(folder, name):
    """The path of the file `name` in a folder; ValueError for a name with a path in it, and for anything but a file."""
    folder = Path(folder)
    if not isinstance(name, str) or name in ("", ".", "..") or {"/", "\\", ":", "\0"} & set(name):
        raise ValueError(f"{folder} names a file that isn't in it: {short(repr(name))}")
    path = folder / name
    if not path.is_file():
        raise ValueError(f"{path} is {'not a file' if path.exists() else 'missing'}")
    return path


def read_if_there(folder, name):
    """The JSON object in the file `name` of a folder; None if there is no such file, ValueError for other content."""
    path = Path(folder) / name
    if not (path.is_symlink() or path.exists()):
        return None
    size = inside(folder, name).stat().st_size
    if size > LARGEST:
        raise ValueError(f"{path} has {size:,} bytes; expected JSON of at most {LARGEST:,}")
    try:
        value = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:  # a UnicodeDecodeError is a ValueError
        raise ValueError(f"{path} is damaged or not JSON: {short(error)}") from error
    if not isinstance(value, dict):
        raise ValueError(f"{path} holds JSON of another kind: expected an object {{…}}, got {short(value)}")
    return value


def weight_files(folder):
    """The files with the weights in a folder; ValueError if there are none, or several without an index."""
    folder = Path(folder)
    names = sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))
    if "model.safetensors" in names:
        return [inside(folder, "model.safetensors")]
    if INDEX in names:
        shards = read_if_there(folder, INDEX).get("weight_map")
        if not isinstance(shards, dict) or not shards:
            raise ValueError(f"{folder / INDEX} is damaged: its weight_map says {short(shards)}; expected a file for "
                             "each array")  # fmt: skip
        return [inside(folder, name) for name in dict.fromkeys(map(str, shards.values()))]
    found = [name for name in names if name.endswith((".safetensors", ".npz"))]
    if len(found) > 1:
        raise ValueError(f"{folder} holds several files with weights ({listed(found)}); give one of them")
    for name in found or [name for name in names if name.endswith(OTHERS)]:
        kind_of(inside(folder, name))  # of another kind's file it says what to do
        return [inside(folder, name)]
    raise ValueError(f"{folder} holds no weights ({listed(names) or 'it is empty'}); {WANTED}")
