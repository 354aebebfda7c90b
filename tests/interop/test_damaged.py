"""Damaged and hostile files, and files larger than the memory."""

import json
import shutil
import subprocess
import sys
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_weights import GIVEN, PLACES

from tinyvit import interop

FILES = [
    ("timm", "model.safetensors"), ("timm", "config.json"), ("huggingface", "model.safetensors"),
    ("huggingface", "config.json"), ("huggingface", "preprocessor_config.json"), ("npz", ""), ("packed", ""),
]  # fmt: skip
PATHS = PLACES | {"packed": "packed.npz"}
ASKED = GIVEN | {"packed": GIVEN["npz"]}


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
    path = tmp_path_factory.mktemp("damaged") / PATHS[form]
    (shutil.copytree if (saved / PATHS[form]).is_dir() else shutil.copy)(saved / PATHS[form], path)
    file = path / name if name else path
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
    path = tmp_path_factory.mktemp("damaged") / PATHS[form]
    (shutil.copytree if (saved / PATHS[form]).is_dir() else shutil.copy)(saved / PATHS[form], path)
    file = path / name if name else path
    content = file.read_bytes().rstrip()
    file.write_bytes(content[: int(share * len(content))])
    assert not loaded_or_refused(path, form)


# -- larger than the memory -------------------------------------------------------------------------------------------

MEASURED = """
import json, sys
from tinyvit import interop

def kilobytes(name):
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(name))

before = kilobytes("VmHWM")
source = interop.open_source(sys.argv[1])
print(1024 * (kilobytes("VmHWM") - before), sum(array.dtype == "float32" for array in source.arrays.values()))
"""


def sparse(path, shapes):
    """A sparse safetensors file of zeros that takes no disk space."""
    header, at = {}, 0
    for name, shape in shapes.items():
        size = 4 * prod(shape)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    content = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(len(content).to_bytes(8, "little") + content)
        file.truncate(8 + len(content) + at)
    return path


@pytest.mark.end_to_end
@pytest.mark.skipif(sys.platform != "linux", reason="files have to be sparse, and /proc be there")
def test_opening_a_file_of_20_GB_takes_no_memory(tmp_path):
    path = sparse(tmp_path / "model.safetensors", {"patch_embed.proj.weight": [10**6, 5000, 1, 1]})
    process = subprocess.run([sys.executable, "-c", MEASURED, path], capture_output=True, check=True, text=True)
    grown, count = map(int, process.stdout.split())
    assert count == 1 and grown < 50e6


def test_absurdly_many_blocks_are_refused_in_one_short_line(tmp_path):
    whole = {"patch_embed.proj.weight": [192, 3, 4, 4], "blocks.0.mlp.fc1.weight": [768, 192]}
    path = sparse(tmp_path / "a.safetensors", whole | {f"blocks.{i}.x": [1] for i in range(20_000)})
    with pytest.raises(ValueError, match="depth must be an int from 1 to 1,000, got 20000"):
        interop.load(path, img_size=8)
