"""The kind of a file by its first bytes, and why others can't be read."""

import zipfile
from contextlib import suppress
from shlex import quote

CONVERT = (
    "python -c \"import sys, torch; from safetensors.torch import save_file; w = torch.load(sys.argv[1], 'cpu', "
    "weights_only=True); w = w.get('model', w.get('state_dict', w)); "
    "save_file({k: v.contiguous().clone() for k, v in w.items()}, sys.argv[2])\""
)
BEGINNINGS = {
    b"<!doctype html": "a web page, saved in place of the weights; download the file itself",
    b"<html": "a web page, saved in place of the weights; download the file itself",
    b"version https://git-lfs": "a git-LFS pointer, not the file it stands for; fetch that by git lfs pull",
    b"\x89hdf": "an HDF5 file (.h5), as TensorFlow and Keras write it",
    b"\x93numpy": "a single array (.npy); expected the .npz of a whole model",
    b"\x1f\x8b": "packed by gzip; unpack it first",
    b"gguf": "a GGUF file, mostly of a language model",
    b"{": "JSON, not weights",
}
SUFFIXES = {
    ".onnx": "an ONNX graph, which runs in onnxruntime; tinyvit writes them, but reads weights only",
    ".msgpack": "Flax's msgpack; take the .safetensors or the .npz of the same model",
    ".pb": "a TensorFlow graph",
    ".index": "part of a TensorFlow checkpoint",
}
WANTED = "expected a .safetensors, the original's .npz, or a folder with config.json and model.safetensors"


def kind_of(path):
    """ "safetensors" or "npz"; ValueError, saying what the file is, for everything else."""
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
        raise ValueError(f"{path} is {described(start, path)}; {WANTED}")
    files = f"{quote(str(path))} {quote(str(path.with_name('model.safetensors')))}"
    raise ValueError(
        f"{path} is a pickle, as PyTorch's .bin, .pt and .pth are: to read it runs whatever code is in it. "
        f"Where you have PyTorch, convert it: {CONVERT} {files}"
    )


def described(start, path):
    """A guess at what a file with these first bytes is."""
    if not start:
        return "empty"
    found = [what for beginning, what in BEGINNINGS.items() if start.lstrip().lower().startswith(beginning)]
    found += [what for suffix, what in SUFFIXES.items() if path.suffix.lower() == suffix]
    is_text = b"\0" not in start and start.isascii()
    return found[0] if found else "text, not weights" if is_text else "of an unknown format, cut off or damaged"
