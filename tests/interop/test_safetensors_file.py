import json
import mmap

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load, save
from strategies import LAYOUTS, laid_out, seeds

from tinyvit.interop.safetensors_file import lazy_arrays
from tinyvit.tensors import tensor_bytes, write_tensors

NUMPY = ("float64", "float32", "float16", "int64", "int32", "int16", "int8", "bool")
TWO = {"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
       "b": {"dtype": "F32", "shape": [1, 3], "data_offsets": [8, 20]}}  # fmt: skip


@st.composite
def arrays(draw):
    """A few arrays by name, of any kind and shape."""
    found = {}
    for name in draw(st.lists(st.text(max_size=5).filter(lambda name: name != "__metadata__"), min_size=1, unique=True,
                              max_size=4)):  # fmt: skip
        shape = draw(st.lists(st.integers(0, 3), max_size=3))
        generator = np.random.default_rng(draw(seeds()))
        found[name] = np.array(100 * generator.standard_normal(shape)).astype(draw(st.sampled_from(NUMPY)))
    return found


def put(path, header, numbers=b"\1" * 20):
    """A file with this header (a dict, or bytes)."""
    header = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + numbers)
    return path


@given(saved=arrays())
def test_files_of_the_safetensors_library_are_read_bit_for_bit(saved, tmp_path_factory):
    path = tmp_path_factory.mktemp("arrays") / "a.safetensors"
    path.write_bytes(save(saved, {"made": "here"}))
    stored = lazy_arrays(path)
    assert stored.keys() == saved.keys()
    for name, array in saved.items():
        assert stored[name].shape == array.shape and stored[name].dtype == array.dtype.name
        np.testing.assert_array_equal(stored[name].read(), array, strict=True)


@given(seed=seeds(), layout=st.sampled_from(LAYOUTS))
def test_arrays_in_any_memory_order_are_written_as_a_run_writes_them(seed, layout, tmp_path_factory):
    path = tmp_path_factory.mktemp("arrays") / "a.safetensors"
    normal = np.random.default_rng(seed).standard_normal((3, 5)).astype("float32")
    saved = {"weight": laid_out(normal, layout), "bias": normal[0].copy(), "scalar": np.array(1.5)}
    write_tensors(path, saved)
    assert path.read_bytes() == tensor_bytes(saved)
    np.testing.assert_array_equal(load(path.read_bytes())["weight"], normal)


def test_a_written_file_has_the_usual_permissions(tmp_path):
    (tmp_path / "plain").write_bytes(b"")
    write_tensors(tmp_path / "a.safetensors", {"x": np.ones(2)})
    assert (tmp_path / "a.safetensors").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_arrays_are_read_only_views_of_one_map_of_the_file(tmp_path):
    write_tensors(tmp_path / "a.safetensors", {"x": np.ones((2, 2), "float32"), "y": np.zeros(3, "float64")})
    stored = lazy_arrays(tmp_path / "a.safetensors")
    x, y = stored["x"].read(), stored["y"].read()
    for array in (x, y):
        assert not array.flags.writeable and not array.flags.owndata
    while isinstance(x, np.ndarray) and x.base is not None:
        x, y = x.base, y.base
    assert isinstance(x.obj, mmap.mmap) and x.obj is y.obj


def test_bfloat16_is_read_as_its_bits(tmp_path):
    import ml_dtypes

    values = np.array([1.5, -2, 3e38], ml_dtypes.bfloat16)
    put(tmp_path / "a", {"x": {"dtype": "BF16", "shape": [3], "data_offsets": [0, 6]}}, values.tobytes())
    stored = lazy_arrays(tmp_path / "a")["x"]
    assert stored.dtype == "bfloat16"
    np.testing.assert_array_equal(stored.read(), values.view("uint16"))


def changed(name, **changes):
    return TWO | {name: TWO[name] | changes}


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        (b"", "the header of .* is damaged or not JSON"),
        (b"{" * 4000, "the header of .* is damaged or not JSON"),
        (b'{"a": {}, "a": {}}', "the key 'a' occurs twice"),
        ({}, "holds no arrays"),
        ({"__metadata__": {"format": "pt"}}, "holds no arrays"),
        ({"a": 3}, "of a its header says 3"),
        ({"a": {"dtype": "F32"}}, "of a its header says"),
        (changed("a", shape=[-2]), "of a its header says"),
        (changed("a", shape=[2.0]), "of a its header says"),
        (changed("a", shape=[True, 2]), "of a its header says"),
        (changed("a", shape="2"), "of a its header says"),
        (changed("a", data_offsets=[0]), "of a its header says"),
        (changed("a", dtype="F8_E4M3"), "a is of dtype F8_E4M3; expected F32"),
        (changed("a", dtype=["F32"]), r"a is of dtype \['F32'\]; expected F32"),
        (changed("a", shape=[3]), r"a is F32 \(3,\), and has 8 bytes"),
        (changed("a", shape=[1] * 40 + [2]), "a is F32 .* and has 8 bytes"),
        (changed("a", data_offsets=[8, 0]), "is cut off or damaged: a should lie at bytes 8 to 0 of 20"),
        (changed("b", data_offsets=[12, 24]), "is cut off or damaged: b should lie at bytes 12 to 24 of 20"),
        (changed("b", shape=[1], data_offsets=[16, 20]), "b begins 8 bytes after the end of a"),
        (changed("b", shape=[4], data_offsets=[4, 20]), "b overlaps with a"),
        ({"a": TWO["a"]}, "its arrays have 8 bytes, and after its header there are 20"),
        (changed("b", shape=[2**40, 2**40], data_offsets=[8, 8 + 2**82]), "is cut off or damaged: b should lie"),
    ],
)
def test_an_invalid_header_is_refused_with_the_file_and_the_reason(tmp_path, header, reason):
    path = put(tmp_path / "a.safetensors", header)
    with pytest.raises(ValueError, match=reason) as error:
        lazy_arrays(path)
    assert str(path) in str(error.value) and len(str(error.value)) < 500


@pytest.mark.parametrize("length", [0, 7, 8, 9, 100])
def test_a_file_truncated_in_its_header_is_refused(tmp_path, length):
    path = put(tmp_path / "a.safetensors", TWO)
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(ValueError, match=r"a\.safetensors is cut off or not a safetensors file"):
        lazy_arrays(path)


def test_an_absurdly_long_header_is_refused_before_it_is_read(tmp_path):
    path = tmp_path / "a.safetensors"
    path.write_bytes((2**63).to_bytes(8, "little") + b"{}")
    with pytest.raises(ValueError, match="its header should have 9,223,372,036,854,775,808 bytes"):
        lazy_arrays(path)
