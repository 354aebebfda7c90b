"""A few of the kills of `tests/kills.py`, and a full disk."""

import re
import resource
import subprocess
import sys

import pytest
from kills import kill_and_resume

pytestmark = pytest.mark.end_to_end


@pytest.mark.full
def test_a_training_killed_at_random_moments_ends_as_if_it_had_not_been(tmp_path):
    assert kill_and_resume(tmp_path, kills=2, epochs=10) >= 1


def train(path, limit, *options):
    """A training that can't write files larger than `limit` bytes, as on a full disk."""
    command = [sys.executable, "-m", "tinyvit", "train", *options]
    return subprocess.run(
        command, capture_output=True, text=True, cwd=path, timeout=60,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )  # fmt: skip


def test_a_full_disk_ends_the_training_with_one_line_and_the_run_can_be_resumed(tmp_path):
    ended = train(tmp_path, 100_000, "digits", "--epochs", "2", "--out", "run", "--device", "cpu")
    assert ended.returncode == 2
    (line,) = ended.stderr.splitlines()
    assert re.fullmatch(r"tinyvit: error: run/checkpoints/step-.* can't be written: .*--resume.*", line)
    assert not list((tmp_path / "run" / "checkpoints").iterdir())  # no partial file takes up space
    again = train(tmp_path, resource.RLIM_INFINITY, "--resume", "run")
    assert (again.returncode, again.stderr) == (0, "") and "test accuracy" in again.stdout
