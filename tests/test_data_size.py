"""The script behind the curves of accuracy by training images in notebook 11, and what it has stored."""

import json
import re
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev

import pytest

SCRIPT = Path(__file__).parents[1] / "notebooks" / "results" / "data_size.py"
KEY = "data", "model", "images", "steps", "seed"


def test_the_stored_runs_are_ones_that_the_script_makes_each_once(script):
    runs = script.stored()
    assert runs and len({tuple(run[name] for name in KEY) for run in runs}) == len(runs)
    for run in runs:
        d = script.DATA[run["data"]]
        assert run["model"] in script.FAMILY and run["images"] in d.images
        config = script.configured(*(run[name] for name in KEY))
        assert run["multiply_adds"] == script.multiply_adds(config.model)
        tests = 360 if run["data"] == "digits" else 10_000
        for step, accuracy, _ in run["history"]:
            assert 0 < step <= run["steps_done"]
            assert tests * accuracy == pytest.approx(round(tests * accuracy), abs=0.01)
        assert run["history"][-1][:2] == [run["steps_done"], run["accuracy"]]


@pytest.mark.parametrize("data, head", [
    ("digits", "| model and training | 50 images"), ("cifar10", "| model | 500 images"),
])  # fmt: skip
def test_the_tables_of_results_are_of_the_stored_runs(script, data, head):
    text = SCRIPT.with_name("README.md").read_text(encoding="utf-8").partition("## Training images")[2]
    table = text.partition(head)[2].partition("| --- |")[2].partition("\n\n")[0]
    rows = dict(re.findall(r"^\| (.+?) \| (.+) \|$", table, re.MULTILINE))
    runs = [run for run in script.stored() if (run["data"], run["steps"]) == (data, script.DATA[data].steps)]
    assert rows.keys() == {run["model"] for run in runs if run["images"] == script.DATA[data].images[0]}
    for model, cells in rows.items():
        for n, cell in zip(script.DATA[data].images, cells.split(" | "), strict=True):
            found = [100 * run["accuracy"] for run in runs if (run["model"], run["images"]) == (model, n)]
            spread = f" ± {stdev(found):.1f}" if len(found) > 1 else ""
            assert cell == f"{mean(found):.1f}{spread} ({len(found)})"


@pytest.mark.parametrize("data", ["digits", "cifar10"])
def test_the_three_models_need_about_equally_many_multiply_adds(script, data):
    shape = script.DATA[data].shape
    counts = [script.multiply_adds(replace(script.MODELS[name][0], **shape)) for name in ("ViT", "ResNet", "hybrid")]
    assert max(counts) < 1.06 * min(counts)


@pytest.mark.parametrize("data", ["digits", "cifar10"])
def test_all_runs_have_about_as_many_steps_and_are_evaluated_often(script, data):
    d = script.DATA[data]
    for n in d.images:
        config = script.configured(data, "ViT", n, d.steps, 0)
        assert abs(config.epochs * (n // d.batch_size) / d.steps - 1) < 0.02
        assert config.epochs / config.evaluate_every >= d.evaluations or config.evaluate_every == 1


def test_runs_differ_in_what_they_are_named_after(script):
    first = script.configured("digits", "ViT", 200, 700, 0)
    wide, other, plain = (
        script.configured("digits", model, 200, 700, 0) for model in ("ViT, 128 wide", "ResNet", "ViT, not regularised")
    )
    assert wide == replace(first, model=replace(first.model, embed_dim=128))
    assert replace(other, model=first.model, architecture="vit") == first
    assert replace(plain, optim=first.optim, augment=first.augment) == first
    muon = script.configured("digits", "ViT, by Muon", 200, 700, 0)
    assert replace(muon, optim=first.optim) == first
    assert (plain.optim.weight_decay, plain.optim.label_smoothing, plain.augment.crop) == (0, 0, 0)


@pytest.mark.end_to_end
def test_what_is_asked_for_is_added_to_the_file_and_not_run_again(script, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(script, "FILE", tmp_path / "runs.json")
    arguments = ["--models", "ViT", "ResNet", "--images", "50", "--steps", "2", "--seeds", "1"]
    script.main(arguments)
    runs = json.loads(script.FILE.read_text())["runs"]
    assert [(run["model"], run["steps_done"], run["seed"]) for run in runs] == [("ViT", 2, 1), ("ResNet", 2, 1)]
    again = script.measured(script.configured("digits", "ViT", 50, 2, 1))
    assert again["accuracy"] == runs[0]["accuracy"], "a run has the same result each time"
    capsys.readouterr()
    monkeypatch.setattr(script, "measured", lambda config: pytest.fail("a finished run was run again"))
    script.main(arguments)
    assert (script.stored(), capsys.readouterr().out) == (runs, "")
