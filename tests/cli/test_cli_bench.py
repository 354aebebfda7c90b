import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from small_bench import TRAIN

from tinyvit.bench.cases import CASES

QUICK = ["--cases", "small", "--kernels", "numpy", "--rounds", "1", "--threads", "1"]


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """A tiny case, and no PyTorch."""
    monkeypatch.setitem(CASES, "small", TRAIN)
    monkeypatch.setattr("tinyvit.bench.run.find_spec", lambda name: None)


@pytest.mark.parametrize(("arguments", "message"), [
    ("--cases vitt", "unknown case 'vitt'; did you mean vit"),
    ("--cases vit nothing-like-it", "unknown case 'nothing-like-it'; expected one of vit, vit-9x192"),
    ("--kernels quick", "kernels: expected one of reference, numpy, fast, got 'quick'"),
    ("--rounds 0", "rounds must be at least 1, got 0"),
    ("--threads 0", "expected a number of threads from 1 to 4,096, got 0"),
    ("--scaling", "say with --out which folder"),
    ("vit", "vit"),
])  # fmt: skip
def test_bad_input_ends_with_one_line_before_any_work(refused, monkeypatch, arguments, message):
    monkeypatch.setattr(subprocess, "Popen", None)
    assert message in refused("bench", *arguments.split())


def test_help_names_every_case(succeeds):
    assert set(CASES) - {"small"} <= set(re.findall(r"[\w-]+", succeeds("bench", "--help")))


def test_a_table_is_printed_and_written_with_the_results_and_json_is_one_object(succeeds, as_json, tmp_path):
    out = succeeds("bench", *QUICK, "--out", "there/new")
    assert "tinyvit, numpy" in out and "the floor" in out and "PyTorch/this" not in out
    assert len(re.findall("^  PyTorch is not installed.*pip install torch timm$", out, re.MULTILINE)) == 1
    folder = tmp_path / "there" / "new"
    assert out == (folder / "bench.txt").read_text()
    assert sorted(file.name for file in folder.iterdir()) == ["bench.json", "bench.txt"]
    assert json.loads((folder / "bench.json").read_text())["cases"][0]["case"] == "small"

    result = as_json("bench", *QUICK, "--threads", "4096")
    assert list(result["settings"].pop("left_out")) == ["torch"]
    cores = result["machine"]["cores"]  # no more threads than these
    assert result["settings"] == {"cases": ["small"], "kernels": ["numpy"], "threads": cores, "rounds": 1}
    (case,) = result["cases"]
    assert case["batch_size"] == 3 and [row["name"] for row in case["results"]] == ["numpy"]


def test_a_worker_that_dies_gives_status_1_and_its_reason(tinyvit, monkeypatch):
    monkeypatch.setattr("tinyvit.bench.run.Player.__enter__", lambda self: self.process.kill() or self)
    status, out, err = tinyvit("bench", *QUICK)
    assert (status, err) == (1, "")
    assert re.search("^  tinyvit, numpy: its process was killed", out, re.MULTILINE)


def test_scaling_alone_measures_no_case_and_leaves_a_picture(succeeds, monkeypatch, tmp_path):
    monkeypatch.setattr("tinyvit.bench.scaling.AXIS_SIZES", dict(tokens=(2, 5), width=(8,), depth=(1,), batch=(2,)))
    monkeypatch.setattr("tinyvit.bench.scaling.REFERENCE_SIZES", dict(tokens=5, width=8, depth=1, batch=2))
    succeeds("bench", "--scaling", *QUICK[2:], "--out", ".")
    assert (tmp_path / "scaling.png").read_bytes().startswith(b"\x89PNG")
    result = json.loads((tmp_path / "bench.json").read_text())
    assert [case["case"] for case in result["cases"]] == ["2 tokens", "5 tokens"]


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs Linux's /proc to find the workers")
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, -15), (signal.SIGKILL, -9)])
def test_no_worker_outlives_the_command_however_it_is_ended(tmp_path, number, status):
    command = [sys.executable, "-c", "from tinyvit import cli; from tinyvit.bench import run; "
               "run.find_spec = lambda name: None; cli.main()", "bench", "--cases", "vit", "--rounds", "1000",
               "--threads", "1", "--kernels", "reference"]  # fmt: skip
    started = subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=os.environ,
        # Background processes of a shell ignore SIGINT, and children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip
    try:
        children = Path(f"/proc/{started.pid}/task/{started.pid}/children")
        until(lambda: len(children.read_text().split()) == 3)  # with multiprocessing's own
        time.sleep(1)  # which are in the middle of it
        workers = [Path("/proc", child, "status") for child in children.read_text().split()]
        started.send_signal(number)
        _, err = started.communicate(timeout=30)
    finally:
        started.kill()
        started.communicate()
    assert started.returncode == status
    assert err == (b"tinyvit: interrupted\n" if number == signal.SIGINT else b"")
    until(lambda: not any(worker.exists() and is_running(worker) for worker in workers))


def is_running(worker):
    """Whether a process is alive; one whose parent has gone may stay as a zombie for a while."""
    try:
        return "State:\tZ" not in worker.read_text()
    except OSError:  # gone in between
        return False


def until(condition, seconds=60):
    """Wait until `condition()` is true."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)
