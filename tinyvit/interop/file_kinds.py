"""The kind of a file by its first bytes, and why others can't be read."""

import zipfile
from shlex import quote

CONVERT = (
    "python -c \"import sys, torch; from safetensors.torch import save_file; w = torch.load(sys.argv[1], 'cpu', "
    "weights_only=True); w = w.get('model', w.get('state_dict', w)); "
    "save_file({k: v.contiguous().clone() for k, v in w.items()}, sys.argv[2])\""
)
LEGACY_TORCH = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19."  # what PyTorch wrote before its files were zips
ONNX = "an ONNX graph, which runs in onnxruntime; tinyvit writes them, but reads weights only"
BEGINNINGS = {
    b"\x89HDF\r\n\x1a\n": "an HDF5 file (.h5), as TensorFlow and Keras write it",
    b"\x93NUMPY": "a single array (.npy); expected the .npz of a whole model",
    b"\x1f\x8b": "packed by gzip; unpack it first",
    b"GGUF": "a GGUF file, mostly of a language model",
    b"version https://git-lfs": "a git-LFS pointer, not the file it stands for; fetch that by git lfs pull",
    b"{": "JSON, not weights",
}
SUFFIXES = {
    ".onnx": ONNX,
    ".msgpack": "Flax's msgpack; take the .safetensors or the .npz of the same model",
    ".pb": "a TensorFlow graph",
    ".index": "part of a TensorFlow checkpoint",
}
WANTED = "expected a .safetensors, the original's .npz, or a folder with config.json and model.safetensors"


def kind_of(path):
    """ "safetensors" or "npz"; ValueError, saying what the file is, for everything else."""
    with path.open("rb") as file:
        start = file.read(512)
    if not start:
        raise ValueError(f"{path} is empty; {WANTED}")
    if start.startswith(b"PK\3\4"):
        return kind_of_zip(path)
    if start[5:9] == b"\0\0\0{":  # after the length of the header, which is far below 2⁴⁰
        return "safetensors"
    if start.startswith(LEGACY_TORCH) or (start[0] == 0x80 and start[1:2] in (b"\2", b"\3", b"\4", b"\5")):
        raise ValueError(pickled(path))
    raise ValueError(f"{path} is {described(start, path)}; {WANTED}")


def kind_of_zip(path):
    """`kind_of` for a zip: both PyTorch's files and .npz are zips."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except Exception as error:  # damaged zips raise errors of every kind
        raise ValueError(f"{path} is cut off or damaged: {error or type(error).__name__}") from error
    if any(name.endswith("data.pkl") for name in names):
        raise ValueError(pickled(path))
    if any(name.endswith(".npy") for name in names):
        return "npz"
    raise ValueError(f"{path} is a zip without arrays; {WANTED}")


def pickled(path):
    """Why PyTorch's own files aren't read, and how to convert one."""
    files = f"{quote(str(path))} {quote(str(path.with_name('model.safetensors')))}"
    return (
        f"{path} is a pickle, as PyTorch's .bin, .pt and .pth are: to read it runs whatever code is in it. "
        f"Where you have PyTorch, convert it: {CONVERT} {files}"
    )


def described(start, path):
    """A guess at what a file with these first bytes is."""
    text = start.lstrip().lower()
    if text.startswith((b"<!doctype html", b"<html", b"<head", b"<?xml")):
        return "a web page, saved in place of the weights; download the file itself"
    for beginning, what in BEGINNINGS.items():
        if start.startswith(beginning):
            return what
    # An ONNX model begins with ir_version, a small number, and the name of its producer.
    if start[0] == 0x08 and start[1:2] <= b"\x7f" and start[2:3] == b"\x12" and start[4:8].isalpha():
        return ONNX
    if path.suffix.lower() in SUFFIXES:
        return SUFFIXES[path.suffix.lower()]
    return "text, not weights" if b"\0" not in start and start.isascii() else "of an unknown format, cut off or damaged"
