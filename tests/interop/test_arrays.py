"""Arrays in files: what the libraries write is read bit for bit, what is damaged or hostile is refused by name."""

import io
import json
import mmap
import zipfile
from importlib import import_module

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save
from strategies import seeds

from tinyvit.interop.arrays import BFLOAT16, as_float, read_npz, read_safetensors
from tinyvit.tensors import tensor_bytes, write_tensors

NUMPY = ("float64", "float32", "float16", "int64", "int32", "int16", "int8", "bool")


@st.composite
def arrays(draw):
    """A few arrays by name, of any kind and shape."""
    found = {}
    for name in draw(st.lists(st.from_regex("[a-z]{1,5}", fullmatch=True), min_size=1, unique=True, max_size=4)):
        shape = draw(st.lists(st.integers(0, 3), max_size=3))
        generator = np.random.default_rng(draw(seeds()))
        found[name] = np.array(100 * generator.standard_normal(shape)).astype(draw(st.sampled_from(NUMPY)))
    return found


def npz(arrays, write=np.savez):
    content = io.BytesIO()
    write(content, **arrays)
    return content.getvalue()


@pytest.mark.parametrize("kind", ["safetensors", "npz", "packed"])
@given(saved=arrays())
def test_files_of_the_libraries_are_read_bit_for_bit(kind, saved, tmp_path_factory):
    path = tmp_path_factory.mktemp("arrays") / "a"
    path.write_bytes(save(saved, {"made": "here"}) if kind == "safetensors" else
                     npz(saved, np.savez if kind == "npz" else np.savez_compressed))  # fmt: skip
    stored = (read_safetensors if kind == "safetensors" else read_npz)(path)
    assert stored.keys() == saved.keys()
    for name, array in saved.items():
        np.testing.assert_array_equal(stored[name], array, strict=True)


def test_a_written_file_has_the_usual_bytes_and_permissions(tmp_path):
    arrays, path = {"x": np.ones((3, 2)).T, "scalar": np.array(1.5)}, tmp_path / "a.safetensors"
    (tmp_path / "plain").write_bytes(b"")
    write_tensors(path, arrays)
    assert path.read_bytes() == tensor_bytes(arrays) and path.stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_arrays_of_safetensors_are_read_only_views_of_the_mapped_file(tmp_path):
    write_tensors(tmp_path / "a.safetensors", {"x": np.ones((2, 2), "float32"), "y": np.zeros(3)})
    for array in read_safetensors(tmp_path / "a.safetensors").values():
        assert not array.flags.writeable
        while isinstance(array, np.ndarray):
            array = array.base
        assert isinstance(array.obj, mmap.mmap)


@pytest.mark.parametrize("kind", ["safetensors", "npz"])
def test_bfloat16_becomes_the_float32_of_the_same_number(kind, tmp_path):
    import ml_dtypes

    values = np.array([1.5, -2, 3e38], ml_dtypes.bfloat16)
    (tmp_path / "a").write_bytes(save({"x": values}) if kind == "safetensors" else npz({"x": values}))
    (stored,) = (read_safetensors if kind == "safetensors" else read_npz)(tmp_path / "a").values()
    assert stored.dtype == BFLOAT16
    np.testing.assert_array_equal(as_float(stored), values.astype("float32"), strict=True)


@given(place=st.integers(0, 8 * 3000 - 1), bit=st.integers(0, 7))
def test_a_flipped_bit_of_an_npz_is_found_anywhere_in_an_array(place, bit, tmp_path_factory):
    path = tmp_path_factory.mktemp("arrays") / "a.npz"
    content = bytearray(npz({"before": np.zeros(3), "x": np.full(3000, 3.0), "y": np.ones(3)}))
    content[content.index(np.full(3000, 3.0).tobytes()) + place] ^= 1 << bit
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"a\.npz is cut off, damaged .*: Bad CRC-32 for file 'x.npy'"):
        read_npz(path)


TWO = {"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
       "b": {"dtype": "F32", "shape": [1, 3], "data_offsets": [8, 20]}}  # fmt: skip


def changed(name, **changes):
    return json.dumps(TWO | {name: TWO[name] | changes}).encode()


@pytest.mark.parametrize(
    "header",
    [b"", b"{" * 4000, b'{"a": 3}', changed("a", shape=[-2]), changed("a", shape=[2.0]), changed("a", dtype="F7"),
     changed("a", shape=[3]), changed("a", shape=[1] * 100 + [2]), changed("a", data_offsets=[8, 0]),
     changed("b", data_offsets=[12, 24]), changed("b", shape=[4], data_offsets=[4, 20]),
     changed("b", shape=[2**40, 2**40], data_offsets=[8, 8 + 2**82]), json.dumps({"a": TWO["a"]}).encode()],
)  # fmt: skip
def test_an_invalid_header_of_a_safetensors_is_refused_with_the_file_and_the_reason(tmp_path, header):
    path = tmp_path / "a.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header + b"\1" * 20)
    with pytest.raises(ValueError, match=r"a\.safetensors is cut off, damaged or not a safetensors file: ") as error:
        read_safetensors(path)
    assert "\n" not in str(error.value) and len(str(error.value)) < 500


def test_numbers_that_numpy_does_not_have_are_refused_by_their_dtype(tmp_path):
    header = json.dumps({"a": {"dtype": "F8_E4M3", "shape": [20], "data_offsets": [0, 20]}}).encode()
    (tmp_path / "a").write_bytes(len(header).to_bytes(8, "little") + header + b"\1" * 20)
    with pytest.raises(ValueError, match="has arrays of the dtype 'F8_E4M3'; expected F32, F64, F16 or BF16"):
        read_safetensors(tmp_path / "a")


@pytest.mark.parametrize("length", [0, 7, 8, 9, 60])
def test_a_file_that_is_cut_off_in_its_header_is_refused(tmp_path, length):
    (tmp_path / "a").write_bytes(save({"x": np.ones(3)})[:length])
    with pytest.raises(ValueError, match="a is cut off, damaged or not a safetensors file"):
        read_safetensors(tmp_path / "a")
    (tmp_path / "a").write_bytes(npz({"x": np.ones(3)})[:length])
    with pytest.raises(ValueError, match="a is cut off, damaged or not an .npz of arrays: File is not a zip file"):
        read_npz(tmp_path / "a")


def npy(array, **changes):
    content = io.BytesIO()
    np.lib.format.write_array(content, array, **changes)
    return content.getvalue()


ONES = npy(np.ones(3))


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("readme.txt", b"hello", "magic string"),
        ("x.npy", b"", "EOF"),
        ("x.npy", ONES[:-1], r"x\.npy is float64 \(3,\), and has 151 bytes"),
        ("x.npy", ONES.replace(b"(3,), ", b"(9,), "), r"x\.npy is float64 \(9,\), and has 152 bytes"),
        ("x.npy", ONES.replace(b"(3,), }" + 9 * b" ", b"(1000000000,), }"), r"x\.npy is float64 \(1000000000,\)"),
        ("x.npy", ONES.replace(b"(3,), ", b"(-3,),"), "negative"),
        ("x.npy", npy(np.array([{}]), allow_pickle=True), "Object arrays cannot be loaded|and has"),
    ],
)
@pytest.mark.parametrize("compress", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_an_invalid_member_of_an_npz_is_refused_with_the_file_and_the_reason(tmp_path, name, content, reason, compress):
    with zipfile.ZipFile(tmp_path / "a.npz", "w", compress) as archive:
        archive.writestr(name, content)
    with pytest.raises(ValueError, match=reason) as error:
        read_npz(tmp_path / "a.npz")
    assert str(error.value).startswith(f"{tmp_path / 'a.npz'} is cut off, damaged or not an .npz of arrays: ")


def test_an_npz_larger_than_the_memory_is_refused_before_it_is_unpacked(tmp_path, monkeypatch):
    np.savez_compressed(tmp_path / "a.npz", x=np.zeros(1000))
    monkeypatch.setattr(import_module("tinyvit.data.folder"), "physical_memory", lambda: 4000)
    with pytest.raises(ValueError, match=r"a\.npz is .*: it unpacks to .* GiB, but this machine has"):
        read_npz(tmp_path / "a.npz")
