"""Arrays in safetensors files: read back bit for bit, and refused by the name of the file if damaged."""

import json
import mmap

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save
from strategies import LAYOUTS, laid_out, seeds

from tinyvit.interop.names import as_float
from tinyvit.tensors import BFLOAT16, load_tensors, map_tensors, tensor_bytes, write_tensors

DTYPES = ("float64", "float32", "float16", "int64", "int32", "int16", "int8", "bool")


@st.composite
def tensors(draw):
    """Arrays by name, of any kind and shape, scalars and empty ones among them, in any memory order."""
    shapes = draw(st.lists(st.lists(st.integers(0, 4), max_size=4), max_size=4))
    generator = np.random.default_rng(draw(seeds()))
    dtype, layout = draw(st.sampled_from(DTYPES)), draw(st.sampled_from(LAYOUTS))
    arrays = [np.array(9 * generator.standard_normal(shape)).astype(dtype) for shape in shapes]
    return {f"layer.{i}": laid_out(x, layout) if x.ndim else x for i, x in enumerate(arrays)}


@given(arrays=tensors())
def test_tensors_are_read_back_unchanged_and_mapped_ones_are_views_of_the_file(tmp_path_factory, arrays):
    path = tmp_path_factory.mktemp("tensors") / "model.safetensors"
    path.write_bytes(tensor_bytes(arrays))
    write_tensors(path.with_name("streamed"), arrays)
    assert path.with_name("streamed").read_bytes() == path.read_bytes()
    loaded, mapped = load_tensors(path), map_tensors(path)
    assert loaded.keys() == mapped.keys() == arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(loaded[name], array, strict=True)
        np.testing.assert_array_equal(mapped[name], array, strict=True)
        base = mapped[name]
        while isinstance(base, np.ndarray):
            base = base.base
        assert not mapped[name].flags.writeable and isinstance(base.obj, mmap.mmap)


def test_equal_weights_give_equal_bytes_in_any_order_and_layout_and_the_usual_permissions(tmp_path):
    weights = {"b": np.arange(6.0).reshape(2, 3), "a": np.arange(4, dtype="float32")}
    other = {name: np.asfortranarray(weights[name]) for name in reversed(weights)}
    assert tensor_bytes(weights) == tensor_bytes(other)
    (tmp_path / "plain").write_bytes(b"")
    write_tensors(tmp_path / "model", weights)
    assert (tmp_path / "model").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_bfloat16_is_mapped_as_the_same_numbers_and_not_loaded(tmp_path):
    values = np.array([1.5, -2, 3e38], ml_dtypes.bfloat16)
    (tmp_path / "a").write_bytes(save({"x": values}))
    stored = map_tensors(tmp_path / "a")["x"]
    assert stored.dtype == BFLOAT16
    np.testing.assert_array_equal(as_float(stored), values.astype("float32"), strict=True)
    with pytest.raises(ValueError, match="a is of bfloat16; expected float32 or float64"):
        load_tensors(tmp_path / "a")


TWO = {"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
       "b": {"dtype": "F32", "shape": [1, 3], "data_offsets": [8, 20]}}  # fmt: skip


def changed(name, **changes):
    return json.dumps(TWO | {name: TWO[name] | changes}).encode()


@pytest.mark.parametrize("header", [
    b"", b"{" * 4000, b'{"a": 3}', changed("a", shape=[-2]), changed("a", shape=[2.0]), changed("a", dtype="F7"),
    changed("a", shape=[3]), changed("a", shape=[1] * 100 + [2]), changed("a", data_offsets=[8, 0]),
    changed("b", data_offsets=[12, 24]), changed("b", shape=[4], data_offsets=[4, 20]),
    changed("b", shape=[2**40, 2**40], data_offsets=[8, 8 + 2**82]), json.dumps({"a": TWO["a"]}).encode(),
])  # fmt: skip
def test_an_invalid_header_is_refused_with_the_file_and_the_reason(tmp_path, header):
    path = tmp_path / "a.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header + b"\1" * 20)
    with pytest.raises(ValueError, match=r"a\.safetensors is cut off, damaged or not a safetensors file: ") as error:
        load_tensors(path)
    assert "\n" not in str(error.value) and len(str(error.value)) < 500


@pytest.mark.parametrize("content", [b"PK\x03\x04" * 100, *(save({"x": np.ones(3)})[:n] for n in (0, 7, 8, 9, 60, -1))])
def test_a_file_that_is_cut_off_or_of_another_kind_is_refused(tmp_path, content):
    (tmp_path / "a").write_bytes(content)
    with pytest.raises(ValueError, match="a is cut off, damaged or not a safetensors file"):
        load_tensors(tmp_path / "a")


def test_numbers_that_numpy_does_not_have_are_refused_by_their_dtype(tmp_path):
    header = json.dumps({"a": {"dtype": "F8_E4M3", "shape": [20], "data_offsets": [0, 20]}}).encode()
    (tmp_path / "a").write_bytes(len(header).to_bytes(8, "little") + header + b"\1" * 20)
    with pytest.raises(ValueError, match="has arrays of the dtype 'F8_E4M3'; expected F32, F64, F16 or BF16"):
        load_tensors(tmp_path / "a")


def test_missing_weights_are_named(tmp_path):
    with pytest.raises(ValueError, match=r"model\.safetensors is missing"):
        load_tensors(tmp_path / "model.safetensors")
