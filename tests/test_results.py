"""The scripts behind measurements in the notebooks, and what they have stored in notebooks/results."""

import importlib.util
import json
import re
from functools import cache
from pathlib import Path
from statistics import mean, stdev

import numpy as np
import pytest

from tinyvit import gradcheck
from tinyvit.models import registry

RESULTS = Path(__file__).parents[1] / "notebooks" / "results"


@cache
def script(name):
    """A script of that name as a module; it registers no architecture for other tests, which go through all."""
    known = dict(registry.ARCHITECTURES)
    spec = importlib.util.spec_from_file_location(name, RESULTS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for new in registry.ARCHITECTURES.keys() - known.keys():
        del registry.ARCHITECTURES[new]
    return module


def table(title, head="\n"):
    """{first cell: the others} of the first table under a title of the page of results, or after its head."""
    text = (RESULTS / "README.md").read_text(encoding="utf-8").partition(title)[2].partition(head)[2]
    return dict(re.findall(r"^\| (.+?) \| (.+) \|$", text.partition("| --- |")[2].partition("\n\n")[0], re.MULTILINE))


def quoted(runs):
    """The mean of their accuracies, its deviation and their number, as the tables have it."""
    found = [100 * run["accuracy"] for run in runs]
    return f"{mean(found):.1f}{f' ± {stdev(found):.1f}' if len(found) > 1 else ''} ({len(found)})"


@pytest.mark.parametrize("data, head", [
    ("digits", "| model and training | 50 images"), ("cifar10", "| model | 500 images"),
])  # fmt: skip
def test_the_tables_of_training_images_are_of_the_stored_runs(data, head):
    module = script("data_size")
    counts, rows = module.DATA[data].images, table("## Training images", head)
    runs = [run for run in module.stored() if (run["data"], run["steps"]) == (data, module.DATA[data].steps)]
    assert rows.keys() == {run["model"] for run in runs if run["images"] == counts[0]}
    for model, cells in rows.items():
        assert cells.split(" | ") == [
            quoted([run for run in runs if (run["model"], run["images"]) == (model, n)]) for n in counts
        ]


def test_dense_prediction_was_measured_with_all_that_its_script_wants():
    module = script("dense")
    stored = {(run["name"], run["head"], run["masks"], run["seed"]) for run in module.stored()}
    assert stored == {*module.wanted()}


def test_the_tables_of_teachers_and_of_training_without_labels_are_of_the_stored_runs():
    runs = script("distillation").stored()
    names = {run["name"] for run in runs}
    assert table("## A teacher") == {name: quoted([run for run in runs if run["name"] == name]) for name in names}
    runs, expected = script("masking").stored(), {}
    for name in {run["model"] for run in runs}:
        knn = [f"{100 * run['knn']:.1f}" for run in runs if run["model"] == name and not run["labels"]] or ["–"]
        expected[name] = f"{knn[0]} | {quoted([run for run in runs if run['model'] == name and run['labels']])}"
    assert table("## Without labels") == expected


def test_the_stored_digits_meet_what_is_asked_of_them():
    module = script("diffusion")
    rows = {row["guidance"]: row for row in module.stored()
            if row["model"] == "dit-digits" and (row.get("method"), row.get("steps")) == ("ddim", 50)}  # fmt: skip
    assert rows[2]["agreement"] >= 0.97 and rows[1]["agreement"] >= 0.85
    assert min(rows[1]["distance"], rows[2]["distance"]) >= module.Judge().distance


def test_means_and_deviations_of_ablations_follow_from_the_stored_runs():
    ablations = script("ablations")
    stored = json.loads(ablations.FILE.read_text())
    for name, rows in ablations.TABLES.items():
        assert stored[name].keys() == rows.keys()
        for row in stored[name].values():
            assert len(row["accuracy"]) == len(ablations.SEEDS)
            assert (row["mean"], row["std"]) == pytest.approx((mean(row["accuracy"]), stdev(row["accuracy"])))


def test_the_gradient_of_post_norm_is_right():
    ablations = script("ablations")
    shape = dict(img_size=8, patch_size=4, in_chans=1, num_classes=3, embed_dim=8, depth=2, num_heads=2)
    model = ablations.PostNormViT(ablations.PostNormConfig(**shape), seed=1, dtype="float64")
    assert gradcheck.check_model(model, np.random.default_rng(0).standard_normal((2, 1, 8, 8))).max_error < 1e-9
