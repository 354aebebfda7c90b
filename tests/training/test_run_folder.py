import json
import os
import struct
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import LAYOUTS, laid_out, seeds

from tinyvit.training import PRESETS
from tinyvit.training.run_folder import RunFolder, load_tensors, locked, next_free, save_tensors, write

CONFIG = PRESETS["digits"]


@pytest.fixture
def folder(tmp_path):
    return RunFolder(tmp_path / "run")


def contents(path):
    return {file.name: file.read_bytes() for file in path.rglob("*") if file.is_file()}


def test_a_run_begins_with_its_configuration_and_an_empty_history(folder):
    with folder.started(CONFIG):
        assert folder.read_config() == CONFIG
        assert folder.metrics.read_bytes() == b""


def test_metrics_are_a_line_of_json_an_evaluation(folder):
    rows = [{"epoch": 1, "test_loss": 0.5}, {"epoch": 2, "test_loss": 0.25}]
    with folder.started(CONFIG):
        for row in rows:
            folder.add_metrics(row)
    assert [json.loads(line) for line in folder.metrics.read_text().splitlines()] == rows


@pytest.mark.parametrize("left", ["config.json", "model.safetensors", "summary.json"])
def test_a_folder_that_holds_a_run_is_refused_and_stays_as_it_is(folder, left):
    folder.path.mkdir()
    (folder.path / left).write_text("precious")
    message = rf"already holds a run \({left}\); choose another folder"
    with pytest.raises(ValueError, match=message), folder.started(CONFIG):
        pass
    assert contents(folder.path) == {left: b"precious", ".lock": b""}


def test_a_run_killed_before_it_wrote_its_configuration_can_be_started_again(folder, monkeypatch):
    def killed(*paths):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", killed)
    with pytest.raises(KeyboardInterrupt), folder.started(CONFIG):
        pass
    monkeypatch.undo()
    assert folder.path.exists() and not folder.config.exists()
    with folder.started(CONFIG):
        assert folder.read_config() == CONFIG


def test_a_file_in_the_place_of_the_folder_is_refused_and_stays(tmp_path):
    (tmp_path / "run").write_text("precious")
    with pytest.raises(ValueError, match="run is a file; choose a folder"), RunFolder(tmp_path / "run").started(CONFIG):
        pass
    assert (tmp_path / "run").read_text() == "precious"


HOLD_THE_LOCK = """
import sys, pathlib
from tinyvit.training.run_folder import locked
with locked(pathlib.Path(sys.argv[1])):
    print("locked", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def other_process(folder):
    """Another process that holds the folder's lock, until it is killed."""
    folder.path.mkdir()
    command = [sys.executable, "-c", HOLD_THE_LOCK, folder.path / ".lock"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "locked\n"
        yield process
        process.kill()


def test_a_folder_in_use_by_another_process_is_refused_until_that_process_is_gone(folder, other_process):
    with pytest.raises(ValueError, match="run is in use by another training"), folder.started(CONFIG):
        pass
    assert not folder.config.exists()
    other_process.kill()
    other_process.wait()
    with folder.started(CONFIG):
        assert folder.config.exists()


def test_a_lock_ends_with_its_block(tmp_path):
    for _ in range(2):
        with locked(tmp_path / ".lock"):
            pass


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
    save_tensors(path, arrays)
    loaded = load_tensors(path)
    assert loaded.keys() == arrays.keys()
    for name, array in arrays.items():
        assert (loaded[name].shape, loaded[name].dtype) == (array.shape, array.dtype)
        np.testing.assert_array_equal(loaded[name], array)


def test_equal_weights_give_equal_bytes_in_any_order_and_layout(tmp_path):
    weights = {"b": np.arange(6.0).reshape(2, 3), "a": np.arange(4, dtype="float32")}
    save_tensors(tmp_path / "one", weights)
    save_tensors(tmp_path / "two", {name: np.asfortranarray(weights[name]) for name in reversed(weights)})
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


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


def test_missing_weights_are_named(tmp_path):
    with pytest.raises(ValueError, match=r"model\.safetensors is missing"):
        load_tensors(tmp_path / "model.safetensors")


def test_what_is_no_run_folder_is_refused(tmp_path):
    (tmp_path / "file").touch()
    for name, reason in (("nowhere", "doesn't exist"), ("file", "file|no folder"), (".", r"has no config\.json")):
        with pytest.raises(ValueError, match=f"is not a run folder: it .*({reason})"):
            RunFolder(tmp_path / name).read_config()


@given(taken=st.integers(0, 4))
def test_next_free_is_the_first_name_that_does_not_exist(tmp_path_factory, taken):
    path = tmp_path_factory.mktemp("runs") / "digits"
    names = ["digits", "digits-2", "digits-3", "digits-4", "digits-5"]
    for name in names[:taken]:
        (path.parent / name).mkdir()
    assert next_free(path).name == names[taken]
