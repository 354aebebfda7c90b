"""Which files of a folder hold weights, without being led out of it."""

import os
from pathlib import Path

from tinyvit.interop.architectures import check_model_type
from tinyvit.interop.foreign import WANTED, kind_of
from tinyvit.interop.stored import listed
from tinyvit.interop.strict_json import read_object, short

CONFIG = "config.json"
PREPROCESSOR = "preprocessor_config.json"
INDEX = "model.safetensors.index.json"
OTHERS = (".bin", ".pt", ".pth", ".h5", ".msgpack", ".ckpt", ".onnx", ".gguf", ".pb", ".index")  # weights of others


def inside(folder, name):
    """The path of the file `name` in a folder. ValueError for a name with a path or control characters in it, for a
    link that leads out of the folder or nowhere, and for what is no file.

    Hugging Face's cache keeps files under other names, in the folder `blobs` beside `snapshots`; links into that one
    are followed.
    """
    folder = Path(folder)
    if not isinstance(name, str) or name in ("", ".", "..") or {"/", "\\", ":", "\0"} & set(name):
        raise ValueError(f"{folder} names a file that isn't in it: {short(repr(name))}")
    if not name.isprintable():  # messages will name it
        raise ValueError(f"{folder} has a name of a file that can't be shown: {short(repr(name))}")
    # Path.resolve raises RuntimeError, in some versions of Python, for a link to itself.
    path, real, home = folder / name, Path(os.path.realpath(folder / name)), Path(os.path.realpath(folder))
    allowed = [home, home.parent.parent / "blobs"] if home.parent.name == "snapshots" else [home]
    if not any(real.is_relative_to(place) for place in allowed):
        raise ValueError(f"{path} leads out of its folder, to {real}; give that file itself, if it is meant")
    if path.is_symlink() and not path.exists():
        raise ValueError(f"{path} is a link that leads nowhere")
    if not path.is_file():
        raise ValueError(f"{path} is {'no file' if path.exists() else 'missing'}")
    return path


def read_if_there(folder, name):
    """The JSON object in the file `name` of a folder; None if there is no such file."""
    path = Path(folder) / name
    return read_object(inside(folder, name)) if path.is_symlink() or path.exists() else None


def origin_of(config, path):
    """Whose `config.json` it is, "timm" or "huggingface"; ValueError for a tinyvit run's, for another architecture's,
    and for what is neither."""
    if {"dataset", "model", "optim"} <= config.keys():
        raise ValueError(f"{path.parent} is a run of tinyvit already; use it as it is")
    if "model_type" in config:
        check_model_type(config, path)
        return "huggingface"
    if "architecture" in config:
        return "timm"
    if "architectures" in config:
        what = short(config["architectures"])
        raise ValueError(f"{path} has architectures {what}, but no model_type; expected model_type 'vit'")
    raise ValueError(f"{path} says neither a model_type, as Hugging Face's do, nor an architecture, as timm's do")


def weight_files(folder):
    """({array name: file that has to hold it}, or None where nothing says that; the files with the weights)."""
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
            kind_of(inside(folder, name))  # says what it is, and what to do
            return None, [inside(folder, name)]
    raise ValueError(f"{folder} holds no weights ({listed(names) or 'it is empty'}); {WANTED}")


def shards_of(folder):
    """{array name: file name}, of weights that are in several files."""
    index = inside(folder, INDEX)
    shards = read_object(index).get("weight_map")
    if not isinstance(shards, dict) or not shards:
        raise ValueError(f"{index} is damaged: its weight_map says {short(shards)}; expected a file for each array")
    files = [name for name in shards.values() if isinstance(name, str)]
    if len(files) < len(shards):
        raise ValueError(f"{index} is damaged: its weight_map names files by what are no names")
    for name in set(files):
        inside(folder, name)
    return shards
