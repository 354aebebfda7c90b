import io
import mmap
import zipfile
from importlib import import_module

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import seeds

from tinyvit.interop.npz_file import lazy_arrays

DTYPES = ("float32", "float64", "float16", ">f4", "int32")


@st.composite
def arrays(draw):
    """A few arrays under names of the original release, of any dtype, shape and memory order."""
    found = {}
    for name in draw(st.lists(st.sampled_from(["cls", "head/kernel", "Transformer/a/bias"]), min_size=1, unique=True)):
        shape = draw(st.lists(st.integers(0, 3), max_size=3))
        normal = np.array(np.random.default_rng(draw(seeds())).standard_normal(shape))
        order = draw(st.sampled_from("CF"))
        found[name] = np.asarray(100 * normal, draw(st.sampled_from(DTYPES)), order=order)
    return found


def put(path, members, compress=zipfile.ZIP_STORED):
    """A zip of files by name."""
    with zipfile.ZipFile(path, "w", compress) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def npy(array, **changes):
    content = io.BytesIO()
    np.lib.format.write_array(content, array, **changes)
    return content.getvalue()


@given(saved=arrays(), packed=st.booleans())
def test_files_saved_by_numpy_are_read_bit_for_bit(saved, packed, tmp_path_factory):
    path = tmp_path_factory.mktemp("arrays") / "a.npz"
    (np.savez_compressed if packed else np.savez)(path, **saved)
    stored = lazy_arrays(path)
    assert stored.keys() == saved.keys()
    for name, array in saved.items():
        assert stored[name].shape == array.shape and stored[name].dtype == array.dtype.name
        np.testing.assert_array_equal(stored[name].read(), array)


def test_uncompressed_members_are_mapped_and_compressed_ones_unpacked_on_demand(tmp_path):
    saved = {"x": np.ones((2, 3)), "y": np.zeros((3, 2), order="F")}
    np.savez(tmp_path / "plain.npz", **saved)
    np.savez_compressed(tmp_path / "packed.npz", **saved)
    for entry in lazy_arrays(tmp_path / "plain.npz").values():
        array = entry.read()
        assert not array.flags.writeable
        while isinstance(array, np.ndarray):
            array = array.base
        assert isinstance(array.obj, mmap.mmap)
    packed = lazy_arrays(tmp_path / "packed.npz")
    (tmp_path / "packed.npz").unlink()
    with pytest.raises(OSError):
        packed["x"].read()


@given(place=st.integers(0, 8 * 3000 - 1), bit=st.integers(0, 7))
def test_a_flipped_bit_is_found_anywhere_in_an_array(place, bit, tmp_path_factory):
    path = tmp_path_factory.mktemp("arrays") / "a.npz"
    np.savez(path, before=np.zeros(3), x=np.full(3000, 3.0), y=np.ones(3))
    content = bytearray(path.read_bytes())
    content[content.index(np.full(3000, 3.0).tobytes()) + place] ^= 1 << bit
    path.write_bytes(content)
    stored = lazy_arrays(path)
    with pytest.raises(ValueError, match=r"a\.npz is damaged: x\.npy has another CRC-32 than the zip says"):
        stored["x"].read()
    assert stored["y"].read().tobytes() == np.ones(3).tobytes()


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_a_file_of_many_arrays_is_not_opened_once_per_array(tmp_path, monkeypatch, save):
    save(tmp_path / "a.npz", **{f"x{i}": np.full(2, i) for i in range(50)})
    opened, real = [], io.open
    monkeypatch.setattr(io, "open", lambda path, *rest, **more: opened.append(path) or real(path, *rest, **more))
    for i, entry in enumerate(lazy_arrays(tmp_path / "a.npz").values()):
        np.testing.assert_array_equal(entry.read(), i)
    assert 1 <= len(opened) <= 2


def test_two_byte_void_arrays_are_read_as_bfloat16(tmp_path):
    import ml_dtypes

    values = np.array([1.5, -2, 3e38], ml_dtypes.bfloat16)
    np.savez(tmp_path / "a.npz", x=values)
    stored = lazy_arrays(tmp_path / "a.npz")["x"]
    assert stored.dtype == "bfloat16"
    np.testing.assert_array_equal(stored.read(), values.view("uint16"))


ONES = npy(np.ones(3))


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ({}, "holds no arrays"),
        ({"readme.txt": b"hello"}, "is no .npz of arrays: it holds readme.txt"),
        ({"x.npy": b""}, "x.npy|EOF|magic"),
        ({"x.npy": b"\x93NUMPY\1\0\xff\xff"}, "is cut off, damaged or not an .npz"),
        ({"x.npy": ONES[:-1]}, r"x\.npy is float64 \(3,\), and has 151 bytes"),
        ({"x.npy": ONES + b"more"}, r"x\.npy is float64 \(3,\), and has 156 bytes"),
        ({"x.npy": ONES.replace(b"(3,), ", b"(9,), ")}, r"x\.npy is float64 \(9,\), and has 152 bytes"),
        ({"x.npy": ONES.replace(b"(3,), ", b"(-3,),")}, r"x\.npy is float64 \(-3,\), and has 152 bytes"),
        ({"x.npy": npy(np.array([{}]), allow_pickle=True)}, "x.npy holds Python objects, and to read them runs the"),
        ({"x.npy": ONES.replace(b"\1\0", b"\3\0", 1)}, r"x\.npy is of version \(3, 0\)"),
        ({"../../etc/x.npy": ONES}, r"isn't to be trusted: it has paths for names, as \.\./\.\./etc/x\.npy"),
        ({"/etc/x.npy": ONES}, "isn't to be trusted: it has paths for names, as /etc/x.npy"),
        ({"a/../../x.npy": ONES}, "isn't to be trusted: it has paths for names"),
        ({"C:/x.npy": ONES}, "isn't to be trusted: it has paths for names"),
        ({"..\\x.npy": ONES}, "isn't to be trusted: it has paths for names"),
    ],
)
@pytest.mark.parametrize("compress", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_invalid_members_are_refused_with_the_file_and_the_reason(tmp_path, members, reason, compress):
    path = put(tmp_path / "a.npz", members, compress)
    with pytest.raises(ValueError, match=reason) as error:
        lazy_arrays(path)
    assert str(error.value).startswith(str(path)) and len(str(error.value)) < 400


def test_a_repeated_name_is_refused(tmp_path):
    with pytest.warns(UserWarning, match="Duplicate name"), zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("x.npy", ONES)
        archive.writestr("x.npy", npy(np.zeros(3)))
    with pytest.raises(ValueError, match="is damaged: it holds x.npy twice"):
        lazy_arrays(tmp_path / "a.npz")


def test_a_zip_bomb_is_refused_before_it_is_unpacked(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("cls.npy", npy(np.zeros(1 << 28, "uint8")))
    with pytest.raises(ValueError, match=r"isn't to be trusted: its [\d,]{7} bytes unpack to 268,435,\d+, and"):
        lazy_arrays(tmp_path / "a.npz")


def test_an_array_larger_than_the_memory_is_refused_before_it_is_unpacked(tmp_path, monkeypatch):
    np.savez_compressed(tmp_path / "a.npz", x=np.random.default_rng(0).standard_normal(1000))
    monkeypatch.setattr(import_module("tinyvit.data.folder"), "physical_memory", lambda: 4000)
    with pytest.raises(ValueError, match=r"a\.npz unpacks to .* GiB, but this machine has"):
        lazy_arrays(tmp_path / "a.npz")


def test_an_encrypted_member_is_refused(tmp_path):
    put(tmp_path / "a.npz", {"x.npy": ONES})
    content = bytearray((tmp_path / "a.npz").read_bytes())
    content[6] |= 1  # the flag in its own header, and in the list of all
    content[content.index(b"PK\1\2") + 8] |= 1
    (tmp_path / "a.npz").write_bytes(content)
    with pytest.raises(ValueError, match="encrypted"):
        lazy_arrays(tmp_path / "a.npz")
