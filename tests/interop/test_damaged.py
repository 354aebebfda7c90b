"""Damaged files, and files larger than the memory."""

import json
import shutil
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_weights import GIVEN, PLACES, WEIGHTS

from tinyvit import interop

FILES = [
    ("timm", "model.safetensors"), ("timm", "config.json"), ("huggingface", "model.safetensors"),
    ("huggingface", "config.json"), ("huggingface", "preprocessor_config.json"), ("npz", ""), ("packed", ""),
]  # fmt: skip
PATHS = PLACES | {"packed": "packed.npz"}
ASKED = GIVEN | {"packed": GIVEN["npz"]}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Folders and files with the same weights, by format."""
    import numpy as np

    root = tmp_path_factory.mktemp("saved")
    for form, name in PLACES.items():
        interop.save(WEIGHTS, root / name, form)
    np.savez_compressed(root / "packed.npz", **np.load(root / PLACES["npz"]))
    return root


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


JUNK = [None, True, -1, 0, 3.5, 1e300, 10**30, "", "8", [], [8], [8, 12, 1], [None], {}, {"height": "x"}, {"0": 1}]


def keys_of(value, path=()):
    """The paths of all values inside a JSON value."""
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield (*path, key)
        yield from keys_of(inner, (*path, key))


@pytest.mark.parametrize(("form", "name"), [file for file in FILES if file[1].endswith(".json")])
@given(data=st.data())
def test_a_configuration_with_junk_in_it_is_loaded_or_refused_by_name(saved, tmp_path_factory, form, name, data):
    path = shutil.copytree(saved / PATHS[form], tmp_path_factory.mktemp("junk") / form)
    content = inner = json.loads((path / name).read_text())
    *steps, last = data.draw(st.sampled_from(list(keys_of(content))))
    for step in steps:
        inner = inner[step]
    inner[last] = data.draw(st.sampled_from(JUNK))
    (path / name).write_text(json.dumps(content))
    loaded_or_refused(path, form)


# -- larger than the memory -------------------------------------------------------------------------------------------

LIMITED = """
import json, resource, sys
from tinyvit import interop
limit = 1 << 30
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
try:
    interop.load(sys.argv[1], **json.loads(sys.argv[2]))
    print("loaded")
except ValueError as error:
    print(error)
"""
MEASURED = """
import json, sys
from tinyvit import interop

def kilobytes(name):
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(name))

before = kilobytes("VmHWM")
source = interop.open_source(sys.argv[1])
print(1024 * (kilobytes("VmHWM") - before), sum(entry.dtype == "float32" for entry in source.arrays.values()))
"""


def sparse(path, shapes):
    """A sparse safetensors file of zeros that takes no disk space."""
    header, at = {}, 0
    for name, shape in shapes.items():
        size = 4
        for side in shape:
            size *= side
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    content = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(len(content).to_bytes(8, "little") + content)
        file.truncate(8 + len(content) + at)
    return path


def printed(code, *arguments):
    return subprocess.run([sys.executable, "-c", code, *map(str, arguments)], capture_output=True, check=True,
                          text=True).stdout  # fmt: skip


@pytest.mark.end_to_end
@pytest.mark.skipif(sys.platform != "linux", reason="files have to be sparse, and memory limited")
@pytest.mark.parametrize(
    ("shapes", "reason"),
    [
        ({"text_model.embeddings.weight": [10**6, 5000]}, "names of an unknown layout: text_model.embeddings.weight"),
        ({"layer.weight": [10**6, 5000]}, "names of an unknown layout: layer.weight"),
    ],
)
def test_weights_of_20_GB_are_recognised_and_refused_in_1_GB(tmp_path, shapes, reason):
    path = sparse(tmp_path / "model.safetensors", shapes)
    assert path.stat().st_size > 20e9
    message = printed(LIMITED, path, "{}")
    assert message.startswith(str(path)) and reason in message


@pytest.mark.end_to_end
@pytest.mark.skipif(sys.platform != "linux", reason="files have to be sparse, and /proc be there")
def test_opening_a_file_of_20_GB_takes_no_memory(tmp_path):
    path = sparse(tmp_path / "model.safetensors", {"patch_embed.proj.weight": [10**6, 5000, 1, 1]})
    grown, count = map(int, printed(MEASURED, path).split())
    assert count == 1 and grown < 50e6
