import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import fields
from pathlib import Path

import pytest
from small_bench import TRAIN

from tinyvit.bench.cases import CASES
from tinyvit.cli.bench import BenchOptions

QUICK = ["--cases", "small", "--kernels", "numpy", "--rounds", "1", "--threads", "1"]


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """A tiny case, and no PyTorch."""
    monkeypatch.setitem(CASES, "small", TRAIN)
    monkeypatch.setattr("tinyvit.bench.player.find_spec", lambda name: None)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--cases vitt", "unknown case 'vitt'; did you mean vit"),
        ("--cases vit nothing-like-it", "unknown case 'nothing-like-it'; expected one of vit, vit-9x192"),
        ("--kernels quick", "kernels: expected one of reference, numpy, fast, got 'quick'"),
        ("--rounds 0", "rounds must be at least 1, got 0"),
        ("--rounds few", "--rounds.*'few'"),
        ("--threads 0", "threads must be at least 1, got 0"),
        ("--scaling", "say with --out which folder"),
        ("vit", "vit"),
        ("--case vit", "--case"),
    ],
)
def test_bad_input_ends_with_one_line_before_any_work(refused, tmp_path, monkeypatch, arguments, message):
    monkeypatch.setattr(subprocess, "Popen", None)
    assert re.search(message, refused("bench", *arguments.split()))
    assert not any(tmp_path.iterdir())


def test_a_file_in_the_place_of_the_folder_is_named(refused, tmp_path):
    (tmp_path / "file").write_text("precious")
    assert "file is a file; choose a folder with --out" in refused("bench", "--out", "file")


def test_help_names_every_option_and_every_case(tinyvit):
    status, out, err = tinyvit("bench", "--help")
    assert (status, err) == (0, "")
    words = set(re.findall(r"[\w-]+", out))
    assert all(f"--{field.name.replace('_', '-')}" in words for field in fields(BenchOptions))
    assert set(CASES) - {"small"} <= words


def test_a_table_is_printed_and_written_with_the_results(tinyvit, tmp_path):
    status, out, err = tinyvit("bench", *QUICK, "--out", "there/new")
    assert (status, err) == (0, "")
    assert "tinyvit, numpy" in out and "the floor" in out and "PyTorch/this" not in out
    assert len(re.findall("^  PyTorch is not installed.*pip install torch timm$", out, re.MULTILINE)) == 1
    folder = tmp_path / "there" / "new"
    assert out == (folder / "bench.txt").read_text()
    assert sorted(file.name for file in folder.iterdir()) == ["bench.json", "bench.txt"]
    assert json.loads((folder / "bench.json").read_text())["cases"][0]["case"] == "small"


def test_json_is_one_object_on_stdout_and_nothing_else(tinyvit):
    status, out, err = tinyvit("bench", *QUICK, "--json")
    assert (status, err) == (0, "")
    result = json.loads(out)
    assert list(result["settings"].pop("left_out")) == ["torch"]
    assert result["settings"] == {"cases": ["small"], "kernels": ["numpy"], "threads": 1, "rounds": 1}
    (case,) = result["cases"]
    assert case["batch_size"] == 3 and [row["name"] for row in case["results"]] == ["numpy"]
    assert result["machine"]["cores"] >= 1 and result["machine"]["numpy"]


def test_more_threads_than_cores_are_cut_down(tinyvit):
    status, out, err = tinyvit("bench", *QUICK, "--threads", "4096", "--json")
    assert (status, err) == (0, "") and json.loads(out)["settings"]["threads"] == json.loads(out)["machine"]["cores"]


def test_a_worker_that_dies_gives_status_1_and_its_reason(tinyvit, monkeypatch):
    monkeypatch.setattr("tinyvit.bench.player.Player.tell", lambda self, *command: self.process.kill())
    status, out, err = tinyvit("bench", *QUICK)
    assert (status, err) == (1, "")
    assert re.search("^  tinyvit, numpy: its process was killed", out, re.MULTILINE)


def test_scaling_alone_measures_no_case_and_leaves_a_picture(tinyvit, monkeypatch, tmp_path):
    monkeypatch.setattr("tinyvit.bench.scaling.GRID", dict(tokens=(2, 5), width=(8,), depth=(1,), batch=(2,)))
    monkeypatch.setattr("tinyvit.bench.scaling.MIDDLE", dict(tokens=5, width=8, depth=1, batch=2))
    status, _, err = tinyvit("bench", "--scaling", *QUICK[2:], "--out", ".")
    assert (status, err) == (0, "")
    assert (tmp_path / "scaling.png").read_bytes().startswith(b"\x89PNG")
    result = json.loads((tmp_path / "bench.json").read_text())
    assert result["cases"] == [] and len(result["scaling"]) == 5


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs Linux's /proc to find the workers")
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, -15), (signal.SIGKILL, -9)])
def test_no_worker_outlives_the_command_however_it_is_ended(tmp_path, number, status):
    command = [sys.executable, "-c", "from tinyvit import cli; from tinyvit.bench import player; "
               "player.find_spec = lambda name: None; cli.main()", "bench", "--cases", "vit", "--rounds", "1000",
               "--threads", "1", "--kernels", "reference"]  # fmt: skip
    started = subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=os.environ,
        # Background processes of a shell ignore SIGINT, and children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip
    try:
        workers = until(lambda: len(found := children(started.pid)) == 3 and found)  # one is multiprocessing's own
        until(lambda: all(seconds_of(worker) > 1 for worker in workers[-1:]))  # which is in the middle of it
        started.send_signal(number)
        _, err = started.communicate(timeout=30)
    finally:
        started.kill()
        started.communicate()
    assert started.returncode == status
    assert err == (b"tinyvit: interrupted\n" if number == signal.SIGINT else b"")
    until(lambda: not any(worker.exists() and is_running(worker) for worker in workers))


def children(pid):
    """The folders in /proc of the processes that a process has started."""
    return [Path("/proc", child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def seconds_of(process):
    """CPU seconds that the process has used."""
    fields = (process / "stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) / os.sysconf("SC_CLK_TCK")


def is_running(process):
    """Whether the process is alive; one whose parent has gone may stay as a zombie for a while."""
    try:
        return "State:\tZ" not in (process / "status").read_text()
    except OSError:  # gone in between
        return False


def until(condition, seconds=60):
    """Wait until `condition()` is true and return its result."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = condition()
        if found:
            return found
        time.sleep(0.05)
    raise TimeoutError(f"not within {seconds} s")
