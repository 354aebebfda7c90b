import itertools
import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace

import pytest

from tinyvit.training import PRESETS, resume, train
from tinyvit.training.display import SilentDisplay
from tinyvit.training.run_folder import RunFolder, locate_run

CONFIG = PRESETS["digits"]


@pytest.fixture
def folder(tmp_path):
    return RunFolder(tmp_path / "run")


def contents(path):
    return {file.name: file.read_bytes() for file in path.rglob("*") if file.is_file()}


def test_a_run_begins_with_its_configuration(folder):
    with folder.start(CONFIG):
        assert folder.read_config() == CONFIG


@pytest.mark.parametrize(
    "left", ["config.json", "preprocessing.json", "model.safetensors", "model.json", "summary.json", "curves.png"]
)
def test_a_folder_that_holds_a_run_is_refused_and_stays_as_it_is(folder, left):
    folder.path.mkdir()
    (folder.path / left).write_text("precious")
    message = rf"already holds a run \({left}\); choose another folder"
    with pytest.raises(ValueError, match=message), folder.start(CONFIG):
        pass
    assert contents(folder.path) == {left: b"precious", ".lock": b""}


HOLD_THE_LOCK = """
import sys
from tinyvit.training.display import SilentDisplay
from tinyvit.training.run_folder import RunFolder
with RunFolder(sys.argv[1]).hold_lock():
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


@pytest.mark.end_to_end
def test_a_folder_in_use_by_another_process_is_refused_until_that_process_is_gone(folder, other_process):
    with pytest.raises(ValueError, match="run is in use by another training"), folder.start(CONFIG):
        pass
    assert not folder.config.exists()
    other_process.kill()
    other_process.wait()
    with folder.start(CONFIG):
        assert folder.config.exists()


def test_a_folder_that_is_not_a_run_is_refused(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    with RunFolder(tmp_path / "digits").start(CONFIG):
        pass
    for name, reason in (("nowhere", "doesn't exist; in .*/, expected one of digits"), ("file", "file|no folder"),
                         ("digit", "in .*/, did you mean digits"), (".", r"has no config\.json")):
        with pytest.raises(ValueError, match=f"is not a run folder: it .*({reason})"):
            RunFolder(tmp_path / name).read_config()
    monkeypatch.chdir(tmp_path)
    (tmp_path / "digits").rename("mine")
    with pytest.raises(ValueError, match="no model of this name comes with tinyvit; did you mean mine?"):
        locate_run("min")


# -- folders that are removed, moved or replaced ----------------------------------------------------------------------

SMALL = replace(
    CONFIG, model=replace(CONFIG.model, embed_dim=16, depth=1, num_heads=2), epochs=2, batch_size=512, device="cpu"
)
GONE = "run was removed, moved or replaced while this training was writing to it"


class Meanwhile(SilentDisplay):
    """A silent display that calls a function after the first step of a training."""

    def __init__(self, action=lambda: None):
        self.action = action

    def step(self, *arguments):
        self.action, action = (lambda: None), self.action
        action()


def test_a_removed_run_belongs_to_the_next_training_that_begins_there(tmp_path):
    path, alone = tmp_path / "run", tmp_path / "alone"
    train(replace(SMALL, seed=7), alone, Meanwhile())

    def replaced():
        shutil.rmtree(path)
        train(replace(SMALL, seed=7), path, Meanwhile())
        left.update(contents(path))

    left = {}
    with pytest.raises(ValueError, match=GONE):
        train(replace(SMALL, seed=0), path, Meanwhile(replaced))
    assert contents(path) == left and left["model.safetensors"] == (alone / "model.safetensors").read_bytes()
    resumed = resume(path, Meanwhile())
    assert resumed["test_accuracy"] == json.loads((alone / "summary.json").read_text())["test_accuracy"]


def test_a_training_whose_folder_was_moved_stops_and_is_resumed_at_the_new_place(tmp_path):
    path, moved = tmp_path / "run", tmp_path / "moved"
    train(SMALL, tmp_path / "alone", Meanwhile())
    with pytest.raises(ValueError, match=GONE):
        train(SMALL, path, Meanwhile(lambda: path.rename(moved)))
    assert not path.exists()
    resume(moved, Meanwhile())
    assert (moved / "model.safetensors").read_bytes() == (tmp_path / "alone" / "model.safetensors").read_bytes()


@pytest.mark.parametrize("replacement", ["file", "folder", "symbolic link", "link to itself", "nothing"])
def test_what_replaces_the_folder_of_a_training_is_left_unchanged(tmp_path, replacement):
    path, other = tmp_path / "run", tmp_path / "other"
    other.mkdir()
    (other / "precious").write_text("precious")

    def replaced():
        shutil.rmtree(path)
        if replacement == "file":
            path.write_text("precious")
        elif replacement == "folder":
            shutil.copytree(other, path)
        elif replacement == "symbolic link":
            path.symlink_to(other)
        elif replacement == "link to itself":
            path.symlink_to(path)

    with pytest.raises(ValueError, match=GONE):
        train(SMALL, path, Meanwhile(replaced))
    assert contents(other) == {"precious": b"precious"}
    if replacement == "folder":
        assert contents(path) == {"precious": b"precious"}
    assert path.is_symlink() == ("link" in replacement) and path.is_file() == (replacement == "file")


@pytest.mark.parametrize("call", range(12))
def test_a_folder_that_is_removed_while_a_file_is_written_ends_the_training_with_the_same_line(tmp_path, call):
    path, calls = tmp_path / "run", itertools.count()

    def fsync(descriptor, fsync=os.fsync):
        if path.exists() and next(calls) == call:
            shutil.rmtree(path)
        fsync(descriptor)

    with pytest.raises(ValueError, match=GONE), pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", fsync)
        train(SMALL, path, Meanwhile())
    assert not path.exists()
