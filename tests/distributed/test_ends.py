"""How a training in several ranks ends: by signals, by a rank that dies, hangs or fails, and by bad input."""

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from launching import HERE, SMALL, finish, mpiexec, ranks_of, tinyvit

from tinyvit.training.checkpoints import Checkpoints

pytestmark, FULL = pytest.mark.mpi, pytest.mark.full
LONG = "train", "digits", *SMALL, "--epochs", "2000", "--save-minutes", "0.001"


def faulty(fault, *arguments):
    return [sys.executable, HERE / "faulty.py", fault, *arguments]


def errors(err):
    return re.findall(r"^tinyvit: error: (.*)", err, re.MULTILINE)


def unexpected(message):
    raise AssertionError(message)


def begun(run, *command):
    """The mpiexec of a training that has taken a few epochs, and its ranks."""
    process = subprocess.Popen(mpiexec(2, *command, "--out", run), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               text=True)  # fmt: skip
    for line in process.stdout:
        if line.startswith("      3  "):
            return process, ranks_of(run)
    raise AssertionError(process.stderr.read())


@pytest.mark.parametrize("number, who", [(signal.SIGTERM, 1), (signal.SIGINT, 0), (signal.SIGINT, "mpiexec")])
def test_a_signal_to_a_rank_or_to_mpiexec_saves_and_ends_all(tmp_path, number, who):
    run = tmp_path / "run"
    process, ranks = begun(run, *tinyvit(*LONG))
    subprocess.run(["kill", f"-{number.name[3:]}", str(process.pid if who == "mpiexec" else ranks[who])], check=True)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 128 + number and not errors(err)
    assert "weights saved" in out
    summary = json.loads((run / "summary.json").read_text())
    about, _ = Checkpoints(run / "checkpoints").newest(unexpected)
    assert about["step"] == summary["steps"] and summary["interrupted"] == 128 + number


@pytest.mark.parametrize("rank", [pytest.param(0, marks=FULL), 1])
def test_a_rank_that_is_killed_ends_all_and_the_last_checkpoint_is_whole(tmp_path, rank):
    run = tmp_path / "run"
    process, ranks = begun(run, *tinyvit(*LONG))
    subprocess.run(["kill", "-KILL", str(ranks[rank])], check=True)
    process.communicate(timeout=60)
    assert process.returncode != 0
    assert Checkpoints(run / "checkpoints").newest(unexpected) is not None
    deadline = time.monotonic() + 10
    while any(Path(f"/proc/{pid}").exists() for pid in ranks.values()):
        assert time.monotonic() < deadline, "a rank is left behind"
        time.sleep(0.1)


@pytest.mark.parametrize("fault, status, expected", [
    ("error", 2, r"rank 1 \(process \d+ on .*\): .*No space left on device"),
    ("bug", 2, r"rank 1 \(process \d+ on .*\): KeyError: 'a bug'"),
    ("stray", 2, r"after step \d+ rank 1 .* has SHA256 of model\.\S+ [0-9a-f]{64}, and rank 0 .* has [0-9a-f]{64}"),
    pytest.param("diverge", 2, "the training diverged: .*; the last good checkpoint is", marks=FULL),
])  # fmt: skip
def test_a_fault_in_a_rank_ends_all_with_one_line_that_says_which_and_why(tmp_path, fault, status, expected):
    run = tmp_path / "run"
    options = *SMALL, "--epochs", 100, "--batch-size", 600, "--save-minutes", 0
    ended, _, err = finish(mpiexec(2, *faulty(fault, "train", "digits", *options, "--out", run)))
    (line,) = errors(err)
    assert re.search(expected, line), line
    assert ended == status
    assert Checkpoints(run / "checkpoints").newest(unexpected)[0]["step"] >= 5


def refused(*command):
    status, out, err = finish(mpiexec(*command))
    assert status == 2 and not out.strip(), (status, out)
    (line,) = errors(err)
    assert err == f"tinyvit: error: {line}\n"
    return line


def test_bad_input_is_refused_once_and_not_once_per_rank(tmp_path):
    train = tinyvit("train", "digits", *SMALL, "--out", tmp_path / "run")
    assert "a batch of 2 images can't be shared by 3 ranks" in refused(3, *train, "--batch-size", 2)
    assert "expected one of" in refused(2, *tinyvit("train", "nothing"))
    assert "nccl needs a GPU for each rank" in refused(2, *train, "--distributed", "nccl")
    assert "several seeds can't be trained by 2 ranks" in refused(2, *train, "--seeds", 0, 1)
    other = [*train, ":", "-n", 1, *train]
    assert re.fullmatch(
        r"rank 1 .* has optim.lr 0.5, and rank 0 .* has 0.03; all ranks must train the same .*",
        refused(1, *other, "--optim.lr", 0.5),
    )  # fmt: skip
    assert not (tmp_path / "run").exists()  # so that the mended command isn't refused


def test_other_data_in_a_rank_is_refused_before_the_first_step(tmp_path):
    line = refused(2, *faulty("other-data", "train", "digits", *SMALL, "--out", tmp_path / "run"))
    assert re.match(r"rank 1 .* has SHA256 of the training images [0-9a-f]{64}, and rank 0 .* has [0-9a-f]{64}", line)


def test_a_missing_mpi4py_or_mpi_says_how_to_install_one(tmp_path):
    for fault, reason in (("no-mpi4py", "it isn't installed"), ("no-mpi", "cannot load MPI library")):
        line = refused(2, *faulty(fault, "train", "digits", *SMALL, "--out", tmp_path / "run"))
        assert reason in line and "python -m pip install mpi4py mpich" in line and "--distributed none" in line


def test_without_mpiexec_mpi4py_is_never_loaded(tmp_path):
    command = [*faulty("no-mpi4py", "train", "digits", *SMALL, "--epochs", "1", "--out", tmp_path / "run")]
    assert finish(command)[0] == 0
    status, _, err = finish([*command[:-1], tmp_path / "other", "--distributed", "mpi"])
    assert status == 2 and "--distributed mpi" in err and "it isn't installed" in err
