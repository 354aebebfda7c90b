"""The checks for a card that run without one: the smoke test, and steps over a driver that only counts."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def output(*command, **options):
    done = subprocess.run([sys.executable, *map(str, command)], capture_output=True, text=True, timeout=300, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.end_to_end
def test_the_smoke_test_finds_nothing_wrong_on_a_cpu():
    assert output(HERE / "smoke.py").endswith("0 errors\n")


@pytest.mark.cuda
def test_a_step_neither_waits_for_the_card_nor_allocates_memory(tmp_path, monkeypatch):
    monkeypatch.setenv("NULL_CUDA", str(tmp_path))
    rows = [json.loads(line) for line in output(HERE / "null.py", HERE / "steps.py").splitlines()]
    assert len(rows) > 20
    for row in rows:
        assert row["launches"] > 0 and not {"syncs", "malloc", "d2h", "capture_syncs"} & set(row), row
        assert ("as a graph" in row["step"]) == ("graphs" in row)
