import errno
import json
import os
import shutil
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import LAYOUTS, laid_out, seeds

from tinyvit.training.files import load_tensors, read_manifest, tensor_bytes, write, write_with_manifest


def contents(path):
    return {file.name: file.read_bytes() for file in path.rglob("*") if file.is_file()}


@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_a_write_that_fails_leaves_the_old_file(tmp_path, monkeypatch, failing):
    path = tmp_path / "summary.json"
    write(path, b"old")

    def fail(*arguments):
        raise OSError("no space left on device")

    monkeypatch.setattr(os, failing, fail)
    with pytest.raises(OSError, match="no space"):
        write(path, b"new and longer")
    assert path.read_bytes() == b"old"


def test_a_write_replaces_the_file_and_leaves_nothing_else(tmp_path):
    for content in (b"old", b"new"):
        write(tmp_path / "summary.json", content)
    assert contents(tmp_path) == {"summary.json": b"new"}


@st.composite
def tensors(draw):
    """Arrays by name, of any shape, scalars and empty ones among them, in any memory order."""
    shapes = draw(st.lists(st.lists(st.integers(0, 4), max_size=4), max_size=4))
    generator = np.random.default_rng(draw(seeds()))
    dtype, layout = draw(st.sampled_from(["float32", "float64", "int64"])), draw(st.sampled_from(LAYOUTS))
    arrays = [np.array(9 * generator.standard_normal(shape)).astype(dtype) for shape in shapes]
    return {f"layer.{i}": laid_out(x, layout) if x.ndim else x for i, x in enumerate(arrays)}


@given(arrays=tensors())
def test_tensors_come_back_as_they_were(tmp_path_factory, arrays):
    path = tmp_path_factory.mktemp("tensors") / "model.safetensors"
    write(path, tensor_bytes(arrays))
    loaded = load_tensors(path)
    assert loaded.keys() == arrays.keys()
    for name, array in arrays.items():
        assert (loaded[name].shape, loaded[name].dtype) == (array.shape, array.dtype)
        np.testing.assert_array_equal(loaded[name], array)


def test_equal_weights_give_equal_bytes_in_any_order_and_layout():
    weights = {"b": np.arange(6.0).reshape(2, 3), "a": np.arange(4, dtype="float32")}
    other = {name: np.asfortranarray(weights[name]) for name in reversed(weights)}
    assert tensor_bytes(weights) == tensor_bytes(other)


def bfloat16_file():
    """A safetensors file of numbers that NumPy has no name for."""
    header = json.dumps({"w": {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]}}).encode()
    return struct.pack("<Q", len(header)) + header + bytes(4)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04" * 100, bfloat16_file()[:-1], bfloat16_file()],
                         ids=["empty", "foreign", "cut off", "bfloat16"])  # fmt: skip
def test_weights_that_cannot_be_read_are_refused_by_the_name_of_the_file(tmp_path, content):
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(ValueError, match=r"model\.safetensors is "):
        load_tensors(tmp_path / "model.safetensors")


def test_bfloat16_is_refused_also_where_numpy_was_taught_it(tmp_path):
    import ml_dtypes

    (tmp_path / "model.safetensors").write_bytes(bfloat16_file())
    assert np.dtype("bfloat16") == ml_dtypes.bfloat16
    with pytest.raises(ValueError, match=r"model\.safetensors is damaged.* its arrays are bfloat16"):
        load_tensors(tmp_path / "model.safetensors")


def test_missing_weights_are_named(tmp_path):
    with pytest.raises(ValueError, match=r"model\.safetensors is missing"):
        load_tensors(tmp_path / "model.safetensors")


# -- manifests --------------------------------------------------------------------------------------------------------

FILES = {"a.bin": b"one two three", "b.bin": b""}


@pytest.fixture
def manifest(tmp_path):
    write_with_manifest(tmp_path / "m.json", FILES, {"step": 7})
    return tmp_path / "m.json"


def test_a_manifest_says_what_was_saved_with_it(manifest):
    content = read_manifest(manifest)
    assert content["step"] == 7 and content["files"]["a.bin"]["bytes"] == 13
    assert contents(manifest.parent).keys() == {"m.json", *FILES}


def test_every_truncation_and_a_flipped_bit_in_every_byte_of_a_manifest_are_noticed(manifest):
    whole = manifest.read_bytes()
    for length in range(len(whole) - 1):  # without its last newline it still says all
        manifest.write_bytes(whole[:length])
        with pytest.raises(ValueError, match=r"m\.json is damaged or no manifest"):
            read_manifest(manifest)
    as_it_was = read_from(manifest, whole)
    for position in range(len(whole)):
        changed = bytearray(whole)
        changed[position] ^= 1 << position % 8
        try:
            content = read_from(manifest, bytes(changed))
        except ValueError:
            continue
        assert content == as_it_was  # white space


def read_from(manifest, content):
    manifest.write_bytes(content)
    return read_manifest(manifest)


@given(length=st.integers(0, 12), position=st.integers(0, 12), bit=st.integers(0, 7))
def test_a_file_that_was_cut_off_changed_or_removed_is_named(tmp_path_factory, length, position, bit):
    folder = tmp_path_factory.mktemp("manifest")
    write_with_manifest(folder / "m.json", FILES)
    flipped = bytearray(FILES["a.bin"])
    flipped[position] ^= 1 << bit
    for content, message in ((FILES["a.bin"][:length], "bytes"), (bytes(flipped), "SHA256"), (None, "missing")):
        (folder / "a.bin").unlink()
        if content is not None:
            (folder / "a.bin").write_bytes(content)
        with pytest.raises(ValueError, match=rf"a\.bin is .*{message}|a\.bin is missing"):
            read_manifest(folder / "m.json")
        (folder / "a.bin").write_bytes(b"")


@pytest.mark.parametrize("content", ["[]", "{}", "null", '{"sha256": 1, "format": 1}', '{"format": 9, "sha256": ""}',
                                     "[" * 100_000, '{"format": 1, "sha256": "", "files": 3}'])  # fmt: skip
def test_json_of_another_kind_is_no_manifest(tmp_path, content):
    with pytest.raises(ValueError, match=r"m\.json is damaged or no manifest"):
        read_from(tmp_path / "m.json", content.encode())


def test_while_files_are_being_replaced_there_is_no_manifest_of_the_old_ones(manifest, monkeypatch):
    def full(*paths):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="no room to save .*a.bin: No space left.*tinyvit train --resume"):
        write_with_manifest(manifest, {"a.bin": b"new"})
    assert contents(manifest.parent) == FILES  # no manifest, no temporary file, nothing damaged


def test_a_folder_that_was_removed_is_named(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    shutil.rmtree(folder)
    with pytest.raises(ValueError, match=r"run was removed while it was in use; summary\.json can't be saved"):
        write(folder / "summary.json", b"")
