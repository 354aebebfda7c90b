"""What a file is, by its first bytes, and why it can't be read where it can't."""

import zipfile
from shlex import quote

CONVERT = (
    "python -c \"import sys, torch; from safetensors.torch import save_file; w = torch.load(sys.argv[1], 'cpu', "
    "weights_only=True); w = w.get('model', w.get('state_dict', w)); "
    "save_file({k: v.contiguous().clone() for k, v in w.items()}, sys.argv[2])\""
)
LEGACY_TORCH = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19."  # what PyTorch wrote before it took zips
BEGINNINGS = {
    b"\x89PNG\r\n\x1a\n": "a PNG image",
    b"\xff\xd8\xff": "a JPEG image",
    b"GIF8": "a GIF image",
    b"%PDF": "a PDF",
    b"GGUF": "a GGUF file, of a language model mostly",
    b"\x89HDF\r\n\x1a\n": "an HDF5 file (.h5), as TensorFlow and Keras write it",
    b"\x93NUMPY": "a single array (.npy); expected the .npz of a whole model",
    b"\x1f\x8b": "packed by gzip; unpack it first",
    b"\xfd7zXZ\0": "packed by xz; unpack it first",
    b"BZh": "packed by bzip2; unpack it first",
    b"7z\xbc\xaf\x27\x1c": "packed by 7-Zip; unpack it first",
    b"\x28\xb5\x2f\xfd": "packed by Zstandard; unpack it first",
    b"\x7fELF": "a program",
}
# What they are called, where the content tells nothing.
SUFFIXES = {
    ".onnx": "an ONNX graph, which runs in onnxruntime; tinyvit writes them, but reads weights only",
    ".msgpack": "Flax's msgpack; take the .safetensors or the .npz of the same model",
    ".tflite": "a TensorFlow Lite model",
    ".pb": "a TensorFlow graph",
    ".index": "part of a TensorFlow checkpoint",
    ".ckpt": "a checkpoint of an unknown kind",
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
    if start[5:9] == b"\0\0\0{":  # behind the length of the header, which is far below 2⁴⁰
        return "safetensors"
    if start.startswith(LEGACY_TORCH) or is_pickle(start):
        raise ValueError(pickled(path))
    raise ValueError(f"{path} is {foreign(start, path)}; {WANTED}")


def kind_of_zip(path):
    """What `kind_of` says of a zip: PyTorch's files are zips, too, and so are .npz."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except Exception as error:  # of a damaged zip
        raise ValueError(f"{path} is cut off or damaged: {error or type(error).__name__}") from error
    if any(name.endswith("data.pkl") for name in names):
        raise ValueError(pickled(path))
    if any(name.endswith(".npy") for name in names):
        return "npz"
    if "model.weights.h5" in names:
        raise ValueError(f"{path} is a model of Keras; {WANTED}")
    raise ValueError(f"{path} is a zip without arrays; unpack it first; {WANTED}")


def is_pickle(start):
    """Whether the first bytes are those of a pickle of protocol 2 or later."""
    return start[0] == 0x80 and 2 <= start[1:2].ljust(1)[0] <= 5


def pickled(path):
    """The reason why PyTorch's own files aren't read, and how to make one that is."""
    files = f"{quote(str(path))} {quote(str(path.with_name('model.safetensors')))}"
    return (
        f"{path} is a pickle, as PyTorch's .bin, .pt and .pth are: to read it runs whatever code is in it. "
        f"Where you have PyTorch, convert it: {CONVERT} {files}"
    )


def foreign(start, path):
    """What a file with these first bytes is, as far as one can tell."""
    for beginning, what in BEGINNINGS.items():
        if start.startswith(beginning):
            return what
    if start[:4] == b"RIFF" and start[8:12] == b"WEBP":
        return "a WebP image"
    if start[257:262] == b"ustar":
        return "a tar archive; unpack it first"
    if start[4:8] == b"TFL3":
        return SUFFIXES[".tflite"]
    text = start.lstrip().lower()
    if text.startswith((b"<!doctype html", b"<html", b"<head", b"<?xml")):
        return "a web page, saved in place of the weights; download the file itself"
    if text.startswith(b"version https://git-lfs"):
        return "a git-LFS pointer, not the file it stands for; fetch that by git lfs pull"
    if is_onnx(start):
        return SUFFIXES[".onnx"]
    if path.suffix.lower() in SUFFIXES:
        return SUFFIXES[path.suffix.lower()]
    if text.startswith((b"{", b"[")):
        return "JSON, not weights"
    if b"\0" not in start and start.isascii():
        return "text, not weights"
    return "of an unknown format, cut off or damaged"


def is_onnx(start):
    """Whether the first bytes are an ONNX model's: its first two fields are ir_version, a small number, and the name
    of what has written it."""
    return start[0] == 0x08 and start[1:2] <= b"\x7f" and start[2:3] == b"\x12" and start[4:8].isalpha()
