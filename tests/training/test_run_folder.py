import json
import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinyvit.training import PRESETS
from tinyvit.training.run_folder import RunFolder, next_free

CONFIG = PRESETS["digits"]


@pytest.fixture
def folder(tmp_path):
    return RunFolder(tmp_path / "run")


def contents(path):
    return {file.name: file.read_bytes() for file in path.rglob("*") if file.is_file()}


def test_a_run_begins_with_its_configuration(folder):
    with folder.started(CONFIG):
        assert folder.read_config() == CONFIG


def test_metrics_are_a_line_of_json_an_evaluation(folder):
    rows = [{"epoch": 1, "test_loss": 0.5}, {"epoch": 2, "test_loss": 0.25}]
    with folder.started(CONFIG):
        folder.write_metrics(rows[:1])
        folder.write_metrics(rows)
    assert [json.loads(line) for line in folder.metrics.read_text().splitlines()] == rows


@pytest.mark.parametrize(
    "left", ["config.json", "preprocessing.json", "model.safetensors", "model.json", "summary.json", "curves.png"]
)
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
import sys
from tinyvit.training.run_folder import RunFolder
with RunFolder(sys.argv[1]).locked():
    print("locked", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def other_process(folder):
    """Another process that holds the folder's lock, until it is killed."""
    folder.path.mkdir()
    command = [sys.executable, "-c", HOLD_THE_LOCK, folder.path]
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
        with RunFolder(tmp_path).locked():
            pass


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
