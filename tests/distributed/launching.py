"""Starting several ranks. They need mpi4py and an mpiexec: the extra `mpi`, and the wheel mpich."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
SMALL = ["--model.embed-dim", "16", "--model.depth", "1", "--device", "cpu", "--threads", "1"]


def mpiexec(count, *command):
    """The beginning of the command that starts `count` ranks, or all of it."""
    found = shutil.which("mpiexec", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    assert found, "these tests need an mpiexec: python -m pip install mpich"
    return [found, "-n", str(count), *map(str, command)]


def tinyvit(*arguments):
    return [sys.executable, "-m", "tinyvit", *map(str, arguments)]


def finish(command, **options):
    """(exit status, stdout, stderr) of a command."""
    ended = subprocess.run(command, capture_output=True, text=True, timeout=150, **options)
    return ended.returncode, ended.stdout, ended.stderr


def ranks_of(run):
    """The process of every rank whose command names a run folder, by its number."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            variables = dict(line.split("=", 1) for line in path.read_bytes().decode().split("\0") if "=" in line)
            command = path.with_name("cmdline").read_bytes().decode().split("\0")
        except OSError:
            continue
        if "PMI_RANK" in variables and str(run) in command:
            found[int(variables["PMI_RANK"])] = int(path.parent.name)
    return found
