"""Repeats the measurements of notebooks that need CIFAR-10 and minutes; the other tests hide all data sets."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from statistics import mean

import pytest

pytestmark = pytest.mark.full
NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
SECONDS = 3600  # minutes on two idle cores
# A third of the trainings, so that it takes ten minutes and not half an hour.
ALL, SOME = "SIDES, SEEDS, A_CLASS = (32, 48), range(3), (", "SIDES, SEEDS, A_CLASS = (32,), range(2), ("


def accuracies(folder):
    """The mean accuracies in `results/transfer.json`: {(way, side of the images): from 0 to 1}."""
    rows = json.loads((folder / "results" / "transfer.json").read_text())["rows"]
    return {(row["way"], row["side"]): mean(row["accuracies"]) for row in rows}


def test_the_notebook_on_transfer_measures_anew_what_it_shows_at_32_pixels_and_transfer_wins(tmp_path):
    data = os.environ.get("TINYVIT_TEST_CIFAR10")
    assert data, "set TINYVIT_TEST_CIFAR10 to a folder with CIFAR-10's binary version"
    folder = tmp_path / "notebooks"
    shutil.copytree(NOTEBOOKS, folder)
    (folder / "results" / "transfer.json").unlink()
    source = (folder / "10_transfer.py").read_text(encoding="utf-8")
    assert source.count(ALL) == 1
    (folder / "10_transfer.py").write_text(source.replace(ALL, SOME), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-B", "-W", "error", "10_transfer.py"], cwd=folder, capture_output=True, text=True,
        timeout=SECONDS, env={**os.environ, "MPLBACKEND": "agg", "TINYVIT_DATA": data},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    measured, stored = accuracies(folder), accuracies(NOTEBOOKS)
    assert measured.keys() == {key for key in stored if key[1] == 32} and len(measured) == 3
    for key, accuracy in measured.items():
        assert abs(accuracy - stored[key]) < 0.04, (key, accuracy, stored[key])
    assert measured["fine-tuned", 32] > measured["from scratch", 32] + 0.04
