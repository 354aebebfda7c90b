import io
import pickle
import zipfile
from shlex import quote

import numpy as np
import pytest
from PIL import Image

from tinyvit.interop.file_kinds import kind_of
from tinyvit.tensors import write_tensors


def zipped(name):
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr(zipfile.ZipInfo(name), b"\x80\2}.")  # without the time, so that tests keep their names
    return content.getvalue()


def picture(kind):
    content = io.BytesIO()
    Image.new("RGB", (4, 4)).save(content, kind)
    return content.getvalue()


def test_file_kinds_are_recognised_by_content_and_not_by_name(tmp_path):
    write_tensors(tmp_path / "a.bin", {"x": np.ones(3)})
    np.savez(tmp_path / "b.npz", x=np.ones(3))
    (tmp_path / "b.npz").rename(tmp_path / "b.pt")
    assert (kind_of(tmp_path / "a.bin"), kind_of(tmp_path / "b.pt")) == ("safetensors", "npz")


@pytest.mark.parametrize(
    ("name", "content", "what"),
    [
        ("w.safetensors", b"", "is empty"),
        ("w.safetensors", picture("PNG"), "is of an unknown format, cut off or damaged"),
        ("w.safetensors", b"\n<!DOCTYPE html><html><body>Sign in</body></html>", "is a web page, saved in place of"),
        ("w.npz", b"<html>404</html>", "is a web page, saved in place of the weights; download the file itself"),
        ("w.safetensors", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "is a git-LFS pointer"),
        ("w.safetensors", b"GGUF\3\0\0\0", "is a GGUF file"),
        ("w.safetensors", b"\x89HDF\r\n\x1a\n" + bytes(90), "is an HDF5 file"),
        ("model.onnx", b"\x0a\x08whatever", "is an ONNX graph"),
        ("flax_model.msgpack", b"\x82\xa3abc", "is Flax's msgpack"),
        ("saved_model.pb", b"\x08\x01\x12\xc2\x01", "is a TensorFlow graph"),
        ("model.ckpt.index", b"\0\0\1", "is part of a TensorFlow checkpoint"),
        ("w.npz", b"\x93NUMPY\1\0v\0{'descr'", "is a single array"),
        ("w.npz", b"\x1f\x8b\x08\0", "is packed by gzip; unpack it first"),
        ("config.json", b'{"model_type": "vit"}', "is JSON, not weights"),
        ("notes.txt", b"some notes", "is text, not weights"),
        ("w.safetensors", bytes(range(1, 250)), "is of an unknown format, cut off or damaged"),
        ("w.safetensors", b"\x10\0\0", "is of an unknown format, cut off or damaged"),
    ],
)
def test_the_error_says_which_kind_of_file_a_foreign_one_is(tmp_path, name, content, what):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(ValueError) as error:
        kind_of(path)
    assert str(error.value).startswith(f"{path} {what}")


PICKLES = {
    "plain": pickle.dumps({"weight": [1, 2]}, protocol=4),
    "of PyTorch before it took zips": b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19." + pickle.dumps({}, protocol=2),
    "in a zip": zipped("archive/data.pkl"),
    "in a zip, at its top": zipped("data.pkl"),
}


@pytest.mark.parametrize("content", PICKLES.values(), ids=PICKLES)
def test_a_pickle_is_refused_with_the_reason_and_the_command_that_converts_it(tmp_path, content):
    path = tmp_path / "pytorch model.bin"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="to read it runs whatever code is in it") as error:
        kind_of(path)
    assert "\n" not in str(error.value)
    assert str(error.value).endswith(f" {quote(str(path))} {quote(str(tmp_path / 'model.safetensors'))}")
