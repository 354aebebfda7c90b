"""Damaged and hostile files."""

import shutil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_weights import GIVEN, PLACES

from tinyvit import interop
from tinyvit.tensors import write_tensors

FILES = [
    ("timm", "model.safetensors"), ("timm", "config.json"), ("huggingface", "model.safetensors"),
    ("huggingface", "config.json"), ("huggingface", "preprocessor_config.json"), ("npz", ""), ("packed", ""),
]  # fmt: skip
PATHS = PLACES | {"packed": "packed.npz"}
ASKED = GIVEN | {"packed": GIVEN["npz"]}


def copied(saved, tmp_path_factory, form, name):
    """A copy of the weights in this form, and the path of one of its files."""
    path = tmp_path_factory.mktemp("damaged") / PATHS[form]
    (shutil.copytree if (saved / PATHS[form]).is_dir() else shutil.copy)(saved / PATHS[form], path)
    return path, path / name if name else path


def loaded_or_refused(path, form):
    """Whether the weights were loaded; if refused, the error must name the file or folder."""
    try:
        weights = interop.load(path, **ASKED[form])
    except ValueError as error:
        assert str(path) in str(error) and len(str(error)) < 3000
        return False
    assert isinstance(weights, interop.Weights)
    return True


@pytest.mark.parametrize(("form", "name"), FILES)
@given(data=st.data())
def test_a_file_with_other_bytes_is_loaded_or_refused_by_name(saved, tmp_path_factory, form, name, data):
    path, file = copied(saved, tmp_path_factory, form, name)
    content = bytearray(file.read_bytes())
    # Half of the positions are in the header, where most errors matter.
    places = st.integers(0, min(2000, len(content) - 1)) | st.integers(0, len(content) - 1)
    for place in data.draw(st.lists(places, min_size=1, max_size=3)):
        content[place] = data.draw(st.integers(0, 255))
    file.write_bytes(content)
    loaded_or_refused(path, form)


@pytest.mark.parametrize(("form", "name"), FILES)
@given(share=st.floats(0, 1, exclude_max=True))
def test_a_truncated_file_is_refused_by_name(saved, tmp_path_factory, form, name, share):
    path, file = copied(saved, tmp_path_factory, form, name)
    content = file.read_bytes().rstrip()
    file.write_bytes(content[: int(share * len(content))])
    assert not loaded_or_refused(path, form)


def test_absurdly_many_blocks_are_refused_in_one_short_line(tmp_path):
    shapes = {"patch_embed.proj.weight": (192, 3, 4, 4), "blocks.0.mlp.fc1.weight": (768, 192)}
    shapes |= {f"blocks.{i}.x": (1,) for i in range(20_000)}
    write_tensors(tmp_path / "a.safetensors", {name: np.zeros(shape, "float32") for name, shape in shapes.items()})
    with pytest.raises(ValueError, match="depth must be an int from 1 to 1,000, got 20000"):
        interop.load(tmp_path / "a.safetensors", img_size=8)
