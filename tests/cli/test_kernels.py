"""--kernels, TINYVIT_KERNELS and --threads, on every command that takes them."""

import json
import shutil
from types import SimpleNamespace

import pytest

from tinyvit import dispatch, levels
from tinyvit.training import threads

TINY = ["--epochs", "1", "--batch-size", "256", "--model.depth", "1", "--model.embed-dim", "16", "--device", "cpu"]


@pytest.fixture
def without_numba(monkeypatch):
    """A machine where numba is missing."""
    levels.checked.cache_clear()
    monkeypatch.setattr(levels, "why_not_fast", lambda: "No module named 'numba'")
    yield
    levels.checked.cache_clear()


@pytest.fixture
def levels_seen(monkeypatch):
    """The levels at which operations run, in any thread."""
    seen, level = set(), levels.level

    def watched():
        seen.add(level())
        return level()

    monkeypatch.setattr(dispatch, "levels", SimpleNamespace(**vars(levels) | {"level": watched}))
    return seen


@pytest.mark.parametrize("level", levels.LEVELS)
def test_a_training_runs_at_the_requested_level_and_says_so(tinyvit, tmp_path, levels_seen, level):
    status, out, err = tinyvit("train", "digits", *TINY, "--kernels", level, "--out", tmp_path / "run")
    assert (status, err) == (0, "")
    assert levels_seen == {level} and f", kernels {level}" in out
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["kernels"] == level
    assert json.loads((tmp_path / "run" / "config.json").read_text())["kernels"] == level


def test_a_training_without_a_requested_level_says_which_one_it_uses(run):
    assert json.loads((run / "summary.json").read_text())["kernels"] == levels.level()


@pytest.mark.parametrize("command", ["evaluate {}", "predict {} {}/curves.png"])
def test_a_trained_model_runs_at_the_requested_level(tinyvit, run, levels_seen, command):
    assert tinyvit(*command.format(run, run).split(), "--kernels", "reference")[0] == 0
    assert levels_seen == {"reference"}


def test_a_run_can_be_resumed_at_another_level(tinyvit, run, tmp_path, levels_seen):
    copy = shutil.copytree(run, tmp_path / "copy")
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps({**config, "epochs": 2, "kernels": "numpy"}))
    (copy / "summary.json").unlink()
    assert tinyvit("train", "--resume", copy, "--kernels", "reference")[0] == 0
    assert levels_seen == {"reference"}
    assert json.loads((copy / "summary.json").read_text())["kernels"] == "reference"


def test_fast_kernels_without_numba_are_refused_before_anything_is_written(refused, tmp_path, without_numba):
    line = refused("train", "digits", *TINY, "--kernels", "fast", "--out", tmp_path / "run")
    assert "'fast' can't be used: No module named 'numba'; pip install 'tinyvit[fast]', or take 'numpy'" in line
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("command", ["evaluate {}", "predict {} {}/curves.png", "train --resume {}"])
def test_fast_kernels_without_numba_are_refused_for_a_trained_model(refused, run, without_numba, command):
    assert "'fast' can't be used" in refused(*command.format(run, run).split(), "--kernels", "fast")


@pytest.mark.parametrize("command", [
    "train digits", "train --resume x", "evaluate x", "predict x y", "data digits", "gradcheck",
    "summary vit_tiny_patch16_224",
])  # fmt: skip
def test_an_unknown_level_in_the_environment_is_refused_by_every_command(refused, monkeypatch, command, tmp_path):
    monkeypatch.setenv("TINYVIT_KERNELS", "quick")
    line = refused(*command.split())
    assert line == "tinyvit: error: TINYVIT_KERNELS: expected one of reference, numpy, fast, got 'quick'\n"
    assert not any(tmp_path.iterdir())


WARNING = (
    "tinyvit: warning: 3 threads were asked for, but this process may use 2 cores: "
    "the work is cut into 3 parts, of which 2 run at once\n"
)


@pytest.mark.parametrize("asked", ["option", "environment"])
def test_more_threads_than_cores_give_a_warning_of_one_line(tinyvit, tmp_path, monkeypatch, asked):
    monkeypatch.setattr(threads, "cores", lambda: 2)
    options = ["--threads", "3"] if asked == "option" else []
    if asked == "environment":
        monkeypatch.setenv("TINYVIT_THREADS", "3")
    status, out, err = tinyvit("train", "digits", *TINY, *options, "--out", tmp_path / "run")
    assert (status, err) == (0, WARNING)
    assert "with up to 2 threads" in out
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["threads"] == 3
    for command in (["evaluate", tmp_path / "run"], ["predict", tmp_path / "run", tmp_path / "run" / "curves.png"]):
        status, _, err = tinyvit(*command, *options)
        assert (status, err) == (0, WARNING)
