"""The commands on runs of a task that no file of the package knows, which tells no classes apart; and on runs whose
config.json names another task or architecture than their weights have."""

import json
import shutil
from dataclasses import dataclass

import numpy as np
import pytest
import tiny_architecture
import tiny_task  # noqa: F401  registers the task

import tinyvit as package
from tinyvit.models import registry

SHAPES = {
    "tiny": ["--architecture", "tiny", "--model.layers", "2"],
    "vit": ["--model.depth", "2", "--model.embed-dim", "16", "--model.global-pool", "token"],
}
NO_CLASSES = "the task 'brightness' isn't classification"


@pytest.fixture
def runs(trained):
    """A finished run of the task for each architecture, and one that classifies."""
    found = {name: trained("digits", "--task", "brightness", *shape) for name, shape in SHAPES.items()}
    return found | {"classifier": trained("digits", *SHAPES["vit"])}


def test_of_a_vit_all_is_drawn_that_needs_no_classes(as_json, succeeds, runs):
    options = "--images", "2", "--out", "pictures"
    seen = as_json("inspect", runs["vit"], *options, "--block", "1", "--head", "0")
    assert set(seen["pictures"]) == {
        "attention-block-1-head-0.png", "patches-block-1-head-0.png", "rollout.png", "positions.png", "filters.png",
        "distance.png", "spectrum.png", "norms.png", "receptive.png",
    }  # fmt: skip
    assert seen["left_out"] == dict.fromkeys(("class", "gradients", "most-wrong"), NO_CLASSES)
    assert set(seen["norms"]) == {"stream", "attn", "mlp"} and not {"predicted", "label", "class"} & set(seen)
    out = succeeds("inspect", runs["vit"], *options)
    assert "what the class token takes from each patch" in out and "taken for" not in out
    assert f"  no class, gradients, most-wrong: {NO_CLASSES}" in out


def test_of_an_architecture_without_attention_the_rest_is_drawn(as_json, runs, photos):
    for image in ("3", photos / "0.png"):
        seen = as_json("inspect", runs["tiny"], "--images", "2", "--out", "pictures", "--image", image)
        assert set(seen["pictures"]) == {"positions.png", "filters.png", "spectrum.png", "norms.png", "receptive.png"}
        no_attention = "Tiny has no attention over the same patches in every layer"
        assert {name: seen["left_out"][name] for name in ("class", "rollout", "distance", "most-wrong")} == {
            "class": NO_CLASSES, "rollout": no_attention, "distance": no_attention, "most-wrong": NO_CLASSES,
        }  # fmt: skip


def test_what_is_about_classes_is_refused_with_the_task_and_with_what_there_is_instead(refused, runs, photos):
    said = f"{NO_CLASSES}; tinyvit evaluate, features, inspect (not --html), knn and probe-linear work with it"
    assert said in refused("predict", runs["vit"], photos)
    assert said in refused("inspect", runs["vit"], "--html", "page.html")
    assert f"--class is for a classifier, and {NO_CLASSES}" in refused("inspect", runs["vit"], "--class", "3")
    for option in (["--tta"], ["--confusion", "a.png"]):
        assert "'brightness'" in refused("evaluate", runs["vit"], *option)
    model, images = package.load(runs["vit"]), np.zeros((2, 1, 8, 8), "float32")
    with pytest.raises(ValueError, match=f"{NO_CLASSES}; call the model for its output"):
        model.predict(images)
    assert model.classes == () and model(images)[0].shape == (2, 10)


def test_a_summary_says_what_the_task_trains_besides_and_the_runs_gradients_are_checked(succeeds, runs):
    for name, run in runs.items():
        out = succeeds("summary", run, "--batch-size", "3")
        assert f"{package.load(run).num_parameters():,}" in out
        assert ("the task 'brightness' trains 11 more parameters around this model" in out) == (name != "classifier")
    out = succeeds("gradcheck", runs["tiny"], "--directions", "2")
    assert "WRONG" not in out and " (" in out


# -- a config.json that doesn't go with the weights -------------------------------------------------------------------


@pytest.fixture
def changed(runs, tmp_path):
    """Makes a copy of a run with other fields in its config.json."""

    def copy(name, **fields):
        path = shutil.copytree(runs[name], tmp_path / "changed")
        config = json.loads((path / "config.json").read_text())
        (path / "config.json").write_text(json.dumps(config | fields))
        return path

    return copy


COMMANDS = (
    "train --resume {run}", "evaluate {run}", "evaluate {run} --best", "features {run} {image} --out a.npy",
    "inspect {run}", "predict {run} {image}",
)  # fmt: skip


@pytest.mark.parametrize(("run", "fields", "said"), [
    ("vit", {"task": "brightnes"}, "unknown task 'brightnes'; did you mean brightness?"),
    ("vit", {"architecture": "vitt"}, "unknown architecture 'vitt'; did you mean vit?"),
    ("vit", {"architecture": "tiny"}, "depth, drop_path_rate, … (16 in all) of TinyConfig"),
    ("vit", {"task": "classification"}, "unknown fields decay of Options"),
    ("classifier", {"architecture": "shapeless", "model": {"img_size": 8, "in_chans": 1}},
     "the architecture 'shapeless' can't serve the task 'classification': it has no num_classes"),
])  # fmt: skip
def test_every_command_says_in_a_short_line_what_does_not_go_together(
    refused, changed, photos, monkeypatch, run, fields, said
):
    @dataclass(frozen=True)
    class Shape:
        img_size: int = 8
        in_chans: int = 1

    monkeypatch.setitem(registry.ARCHITECTURES, "shapeless", (tiny_architecture.Tiny, Shape))
    copy = changed(run, **fields)
    for command in COMMANDS:
        line = refused(*command.format(run=copy, image=photos / "0.png").split())
        assert said in line and len(line) < 400, line


def test_weights_of_another_shape_are_refused_in_a_short_line(refused, changed):
    copy = changed("vit", task="classification", objective={})
    assert "its config.json isn't what was trained" in refused("train", "--resume", copy)
    line = refused("evaluate", copy)
    assert "missing: cls_token, pos_embed" in line and "unexpected: model.blocks.0" in line and len(line) < 500, line
    assert "config.json names architecture 'vit', task 'classification'" in line
