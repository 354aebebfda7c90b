"""`--device` and `--precision` without a GPU, and with one that doesn't support the request; `--kernels`,
`TINYVIT_KERNELS` and `--threads`."""

import json
import sys
from types import SimpleNamespace

import pretend_cupy
import pytest

from tinyvit import dispatch, levels
from tinyvit.training import threads

TINY = ["--epochs", "1", "--batch-size", "256", "--model.depth", "1", "--model.embed-dim", "16"]
COMMANDS = ("train digits", "train --resume {run}", "evaluate {run}", "predict {run} {run}/curves.png --invert")
NO_GPU = "on the CPU, no GPU: CuPy isn't installed (pip install 'tinyvit[cuda12]', or cuda13)"


@pytest.fixture
def without_cupy(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)  # importing it raises, as if it weren't installed


@pytest.fixture
def unfinished(own_run):
    (own_run / "summary.json").unlink()
    return own_run


@pytest.mark.parametrize("command", COMMANDS)
def test_a_requested_gpu_that_is_missing_is_refused_and_auto_says_once_why_it_uses_the_cpu(
    refused, says_all, without_cupy, unfinished, command
):
    command = command.format(run=unfinished).split()
    for device in ("cuda", "cuda:1"):
        message = f"device '{device}' can't be used: CuPy isn't installed (pip install 'tinyvit[cuda12]', or cuda13)"
        assert message in refused(*command, "--device", device)
    assert "unknown device 'gpu'; expected one of auto, cpu, cuda, or cuda:0, cuda:1, …" in refused(
        *command, "--device", "gpu"
    )
    status, out, err = says_all(*command, "--device", "auto", *(TINY if command[-1] == "digits" else ()))
    assert status == 0 and (out + err).count(NO_GPU.partition("no GPU: ")[2]) == 1
    assert err == ("" if command[0] == "train" else f"tinyvit: {NO_GPU}\n")


def test_nothing_is_said_where_the_cpu_was_requested(says_all, without_cupy, run):
    status, out, err = says_all("evaluate", run, "--device", "cpu", "--json")
    assert (status, err, json.loads(out)["device"]) == (0, "", "cpu")
    assert says_all("predict", run, run / "curves.png", "--invert", "--device", "cpu")[2] == ""


@pytest.mark.parametrize("command", ["predict {run} gone.png", "inspect {run} --images 1 --out /proc/none"])
def test_after_an_error_nothing_is_said_about_the_cpu(says_all, without_cupy, run, command):
    status, _, err = says_all(*command.format(run=run).split())
    assert status == 2 and "no GPU" not in err


def test_a_gpu_run_can_be_resumed_on_the_cpu_in_float32_only(refused, tinyvit, without_cupy, unfinished):
    message = "precision 'bfloat16' needs a GPU, and none can be used: CuPy isn't installed"
    assert message in refused("train", "digits", "--precision", "bfloat16")
    config = json.loads((unfinished / "config.json").read_text()) | {"precision": "bfloat16", "device": "cuda"}
    (unfinished / "config.json").write_text(json.dumps(config))
    assert "device 'cuda' can't be used" in refused("train", "--resume", unfinished)
    assert "precision 'bfloat16' needs a GPU" in refused("train", "--resume", unfinished, "--device", "cpu")
    assert tinyvit("evaluate", unfinished, "--device", "cpu")[0] == 0
    assert tinyvit("train", "--resume", unfinished, "--device", "cpu", "--precision", "float32")[0] == 0


def test_a_gpu_number_beyond_the_last_one_is_refused(refused, monkeypatch, run):
    monkeypatch.setitem(sys.modules, "cupy", pretend_cupy.cupy)
    assert "'cuda:7' can't be used: there is 1 GPU, cuda:0" in refused("evaluate", run, "--device", "cuda:7")


# -- kernels ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def without_numba(monkeypatch):
    """A machine where numba is missing."""
    levels.usable_level.cache_clear()
    monkeypatch.setattr(levels, "why_not_fast", lambda: "No module named 'numba'")
    yield
    levels.usable_level.cache_clear()


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
def test_a_training_runs_at_the_requested_level_and_says_so(succeeds, tmp_path, levels_seen, level):
    out = succeeds("train", "digits", *TINY, "--kernels", level, "--out", tmp_path / "run")
    assert levels_seen == {level} and f", kernels {level}" in out
    for name in ("summary.json", "config.json"):
        assert json.loads((tmp_path / "run" / name).read_text())["kernels"] == level


@pytest.mark.parametrize("command", COMMANDS[1:])
def test_a_run_is_resumed_evaluated_and_used_at_the_requested_level(succeeds, unfinished, levels_seen, command):
    config = json.loads((unfinished / "config.json").read_text())
    assert config["kernels"] is None or config["kernels"] == levels.level()
    (unfinished / "config.json").write_text(json.dumps({**config, "epochs": 2, "kernels": "numpy"}))
    succeeds(*command.format(run=unfinished).split(), "--kernels", "reference")
    assert levels_seen == {"reference"}


@pytest.mark.parametrize("command", COMMANDS)
def test_fast_kernels_without_numba_are_refused(refused, unfinished, without_numba, command):
    line = refused(*command.format(run=unfinished).split(), "--kernels", "fast")
    assert "'fast' can't be used: No module named 'numba'; pip install 'tinyvit[fast]', or take 'numpy'" in line


@pytest.mark.parametrize("command", ["train digits", "train --resume x", "evaluate x", "data digits", "gradcheck"])
def test_an_unknown_level_in_the_environment_is_refused_by_every_command(refused, monkeypatch, command):
    monkeypatch.setenv("TINYVIT_KERNELS", "quick")
    line = refused(*command.split())
    assert line == "tinyvit: error: TINYVIT_KERNELS: expected one of reference, numpy, fast, got 'quick'\n"


# -- threads ----------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("options", [["--threads", "3"], []])
def test_of_more_threads_than_cores_as_many_run_at_once_as_there_are_cores(tinyvit, refused, run, monkeypatch, options):
    monkeypatch.setattr(threads, "cores", lambda: 2)
    monkeypatch.setenv("TINYVIT_THREADS", "many" if options else "3")
    status, out, err = tinyvit("train", "digits", *TINY, *options)
    assert (status, err) == (0, "") and "with up to 2 threads" in out
    for command in (["evaluate", run], ["predict", run, run / "curves.png", "--invert"]):
        status, _, err = tinyvit(*command, *options)
        assert (status, err) == (0, "")
    if options:
        assert "got 'many'" in refused("evaluate", run)
