import json
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import LAYOUTS, laid_out, seeds

from tinyvit.tensors import load_tensors, tensor_bytes, write_tensors


@st.composite
def tensors(draw):
    """Arrays by name, of any shape, scalars and empty ones among them, in any memory order."""
    shapes = draw(st.lists(st.lists(st.integers(0, 4), max_size=4), max_size=4))
    generator = np.random.default_rng(draw(seeds()))
    dtype, layout = draw(st.sampled_from(["float32", "float64", "int64"])), draw(st.sampled_from(LAYOUTS))
    arrays = [np.array(9 * generator.standard_normal(shape)).astype(dtype) for shape in shapes]
    return {f"layer.{i}": laid_out(x, layout) if x.ndim else x for i, x in enumerate(arrays)}


@given(arrays=tensors())
def test_tensors_are_read_back_unchanged(tmp_path_factory, arrays):
    path = tmp_path_factory.mktemp("tensors") / "model.safetensors"
    path.write_bytes(tensor_bytes(arrays))
    write_tensors(path.with_name("streamed"), arrays)
    assert path.with_name("streamed").read_bytes() == path.read_bytes()
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
    """A safetensors file of bfloat16, a dtype that NumPy lacks."""
    header = json.dumps({"w": {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]}}).encode()
    return struct.pack("<Q", len(header)) + header + bytes(4)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04" * 100, bfloat16_file()[:-1], bfloat16_file()],
                         ids=["empty", "foreign", "cut off", "bfloat16"])  # fmt: skip
def test_weights_that_cannot_be_read_are_refused_by_the_name_of_the_file(tmp_path, content):
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(ValueError, match=r"model\.safetensors is "):
        load_tensors(tmp_path / "model.safetensors")


def test_bfloat16_is_refused_even_where_ml_dtypes_is_loaded(tmp_path):
    import ml_dtypes

    (tmp_path / "model.safetensors").write_bytes(bfloat16_file())
    assert np.dtype("bfloat16") == ml_dtypes.bfloat16
    with pytest.raises(ValueError, match=r"model\.safetensors is damaged.* its arrays are bfloat16"):
        load_tensors(tmp_path / "model.safetensors")


def test_missing_weights_are_named(tmp_path):
    with pytest.raises(ValueError, match=r"model\.safetensors is missing"):
        load_tensors(tmp_path / "model.safetensors")
