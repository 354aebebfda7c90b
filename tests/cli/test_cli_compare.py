"""`tinyvit compare`, on runs that differ in a little, in much, and in their tasks."""

import json
import re

import pytest
from PIL import Image

TINY = ["--model.depth", "1", "--model.embed-dim", "16"]


def test_settings_that_differ_results_and_curves_are_those_of_the_runs(as_json, succeeds, trained, run, tmp_path):
    other = trained("digits", *TINY, "--seed", "1", "--optim.lr", "0.01")
    found = as_json("compare", run, other)["runs"]
    assert [one["settings"] for one in found] == [{"seed": 0, "optim.lr": 0.03}, {"seed": 1, "optim.lr": 0.01}]
    for path, one in zip((run, other), found):
        row = json.loads((path / "metrics.jsonl").read_text())
        assert one.items() >= {name: row[name] for name in row if name.startswith(("epoch", "sec", "tr", "te"))}.items()
    with Image.open(tmp_path / "compare.png") as picture:
        assert picture.size == (1080, 924)  # loss and accuracy, over epochs and over minutes, and a legend
    out, accuracies = succeeds("compare", run, other), [f"{100 * one['test_accuracy']:.2f} %" for one in found]
    assert ["optim.lr", "0.03", "0.01"] in (cells := [re.split("  +", line.strip()) for line in out.splitlines()])
    assert ["test accuracy", *accuracies] in cells


def test_other_architectures_and_a_model_that_comes_with_tinyvit_are_compared(as_json, trained, run):
    resnet = trained("digits", "--architecture", "resnet", "--model.depths", "1", "--model.width", "8")
    vit, resnet, stored = (one["settings"] for one in as_json("compare", run, resnet, "cifar10-cpu")["runs"])
    assert (vit["dataset"], stored["dataset"]) == ("digits", "cifar10")
    assert "model.width" not in vit and resnet["model.width"] == 8 and "model.embed-dim" not in resnet


def test_of_different_tasks_shares_are_compared_and_without_any_they_are_refused(as_json, refused, trained, run):
    student = trained("digits", *TINY, "--task", "distillation", "--objective.teacher", str(run))
    for one in as_json("compare", run, student)["runs"]:
        assert {"train_accuracy", "test_accuracy"} < set(one) and not {"train_loss", "test_loss"} & set(one)
    hidden = trained("digits", *TINY, "--task", "mae")
    assert "runs of the tasks classification, mae have no figure in common" in refused("compare", run, hidden)


@pytest.mark.parametrize("metrics", ["", "[]\n", "{\n", '{"epoch": null}\n', '{"epoch": 1, "seconds": 1}\n'])
def test_one_run_and_one_without_figures_are_refused(refused, run, own_run, metrics):
    assert "expected two different runs or more: RUN RUN …, got" in refused("compare", run, run)
    (own_run / "metrics.jsonl").write_text(metrics)
    assert f"{own_run} has no figures to compare in metrics.jsonl: " in refused("compare", run, own_run)
