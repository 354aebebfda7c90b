"""Imports and exports that run out of disk space or are terminated, each in its own process."""

import re
import signal
import subprocess
import sys

import pytest
from small_weights import WEIGHTS

from tinyvit import interop


@pytest.fixture
def folder(tinyvit, tmp_path):
    """A folder with timm's weights and the run imported from them."""
    interop.save(WEIGHTS, tmp_path / "timm", "timm")
    assert tinyvit("import", "timm", "--out", "run")[0] == 0
    return tmp_path


def contents(folder):
    return {path: path.read_bytes() if path.is_file() else None for path in sorted(folder.rglob("*"))}


def in_new_process(folder, code, *arguments):
    """Run a command in a new process, after some code."""
    command = "; from tinyvit import cli; cli.main(sys.argv[1:])"
    return subprocess.Popen([sys.executable, "-c", f"import sys; {code}{command}", *arguments], cwd=folder,
                            stderr=subprocess.PIPE, text=True)  # fmt: skip


@pytest.mark.skipif(sys.platform != "linux", reason="the size of files has to be limited")
@pytest.mark.parametrize(
    "arguments", [("import", "timm"), *(("export", "run", "--format", form) for form in ("timm", "huggingface", "npz"))]
)
def test_a_full_disk_is_one_line_with_the_place_and_leaves_nothing(folder, arguments):
    before = contents(folder)
    out = "new.npz" if "npz" in arguments else "new"
    limited = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))"
    process = in_new_process(folder, limited, *arguments, "--out", out)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert re.fullmatch(rf"tinyvit: error: {out} can't be written: .*File too large.* so make room or choose .*\n", err)
    assert contents(folder) == before


# The file is complete, and takes a minute to reach the disk.
SLOW = (
    "import time; from tinyvit import files; "
    "files.sync = lambda path: (print('waits', file=sys.stderr, flush=True), time.sleep(60))"
)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signals")
@pytest.mark.parametrize(("name", "status"), [("SIGTERM", 143), ("SIGHUP", 129), ("SIGINT", 130)])
@pytest.mark.parametrize("arguments", [("import", "timm"), ("export", "run", "--format", "timm")])
def test_a_terminated_command_leaves_nothing(folder, arguments, name, status):
    before = contents(folder)
    process = in_new_process(folder, SLOW, *arguments, "--out", "new/folder")
    assert process.stderr.readline() == "waits\n"
    assert len(contents(folder)) > len(before)
    process.send_signal(getattr(signal, name))
    process.communicate(timeout=60)
    assert process.returncode == status
    assert contents(folder) == before


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signals")
def test_leftovers_of_a_killed_command_are_removed_by_the_next_one_in_the_same_place(tinyvit, folder):
    before = contents(folder)
    process = in_new_process(folder, SLOW, "import", "timm", "--out", "new")
    process.stderr.readline()
    assert tinyvit("import", "timm", "--out", "meanwhile")[0] == 0
    assert any(path.suffix == ".tmp" for path in folder.iterdir())  # whose maker is alive
    process.kill()
    process.communicate(timeout=60)
    assert tinyvit("import", "timm", "--out", "new")[0] == 0
    assert {path.name for path in folder.iterdir()} - {path.name for path in before} == {"new", "meanwhile"}
