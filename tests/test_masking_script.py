"""The script behind the figures of notebook 15, and what it has stored."""

import re
from pathlib import Path
from statistics import mean, stdev

import pytest

SCRIPT = Path(__file__).parents[1] / "notebooks" / "results" / "masking.py"


def test_the_stored_runs_are_ones_that_the_script_makes_each_once(script):
    runs = script.stored()
    assert runs and len({(run["model"], run["labels"], run["seed"]) for run in runs}) == len(runs)
    for run in runs:
        if run["labels"]:
            config = script.from_scratch(run["seed"], "folder", 1)
            steps = config.epochs * script.LABELS // config.batch_size
            assert 10_000 * run["accuracy"] == pytest.approx(round(10_000 * run["accuracy"]), abs=0.01)
        else:
            config = script.PRETRAINED[run["model"]]
            steps = config.epochs * ((config.images or 50_000) // config.batch_size)
        assert run["steps"] == steps


def test_models_of_the_sweep_differ_in_what_is_hidden_alone(script):
    swept = [config for name, config in script.PRETRAINED.items()
             if name.startswith("MAE, ") and not name.endswith("epochs")]  # fmt: skip
    assert [config.objective.share for config in swept] == [0.15, 0.5, 0.75, 0.9, 0.75]
    assert len({repr(config).replace(repr(config.objective), "") for config in swept}) == 1
    assert [config.objective.normalise for config in swept] == [True] * 4 + [False]


def test_the_table_of_results_is_of_the_stored_runs(script):
    text = SCRIPT.with_name("README.md").read_text(encoding="utf-8").partition("## Without labels")[2]
    rows = dict(re.findall(r"^\| (.+?) \| (.+) \|$", text.partition("| --- |")[2].partition("\n\n")[0], re.MULTILINE))
    runs = script.stored()
    assert rows.keys() == {run["model"] for run in runs}
    for name, cells in rows.items():
        knn = [f"{100 * run['knn']:.1f}" for run in runs if run["model"] == name and not run["labels"]] or ["–"]
        found = [100 * run["accuracy"] for run in runs if run["model"] == name and run["labels"]]
        spread = f" ± {stdev(found):.1f}" if len(found) > 1 else ""
        assert cells == f"{knn[0]} | {mean(found):.1f}{spread} ({len(found)})"
