"""The script behind notebook 12, and what it has stored."""

import re
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev

import pytest

from tinyvit.models import build

SCRIPT = Path(__file__).parents[1] / "notebooks" / "results" / "distillation.py"


def test_the_stored_runs_are_ones_that_the_script_makes_each_once(script):
    runs = script.stored()
    assert runs and len({(run["name"], run["seed"]) for run in runs}) == len(runs)
    for run in runs:
        made = (run["seed"], "folder", 1)
        teacher = run["name"] == "teacher"
        config = script.teacher(*made) if teacher else script.student(run["name"], run["seed"], "run", "folder", 1)
        assert run["parameters"] == build(config.model, device="meta").num_parameters()
        assert run["steps"] == config.epochs * script.IMAGES // config.batch_size
        assert 10_000 * run["accuracy"] == pytest.approx(round(10_000 * run["accuracy"]), abs=0.01)
        assert teacher or len(run["cosines"]) == config.model.depth + 1


def test_students_differ_in_their_loss_alone(script):
    alone = script.student("no teacher", 0, None, "folder", 1)
    for name in script.STUDENTS:
        student = script.student(name, 0, "run", "folder", 1)
        assert replace(student, task="classification", objective=None) == alone


def test_the_table_of_results_is_of_the_stored_runs(script):
    text = SCRIPT.with_name("README.md").read_text(encoding="utf-8").partition("## A teacher")[2]
    rows = dict(re.findall(r"^\| (.+?) \| (.+) \|$", text.partition("| --- |")[2].partition("\n\n")[0], re.MULTILINE))
    runs = script.stored()
    assert rows.keys() == {run["name"] for run in runs}
    for name, cells in rows.items():
        found = [100 * run["accuracy"] for run in runs if run["name"] == name]
        spread = f" ± {stdev(found):.1f}" if len(found) > 1 else ""
        assert cells == f"{mean(found):.1f}{spread} ({len(found)})"
