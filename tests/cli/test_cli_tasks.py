"""The commands on runs of a task that no file of the package knows, which tells no classes apart; and on runs whose
config.json names another task or architecture than their weights have."""

import json
import shutil
from dataclasses import dataclass, replace

import numpy as np
import pytest
import tiny_architecture
import tiny_task  # noqa: F401  registers the task
from PIL import Image

import tinyvit as package
from tinyvit import cli
from tinyvit.models import registry

SMALL = ["--epochs", "1", "--batch-size", "256", "--threads", "1", "--device", "cpu"]
SHAPES = {
    "tiny": ["--architecture", "tiny", "--model.layers", "2"],
    "vit": ["--model.depth", "2", "--model.embed-dim", "16", "--model.global-pool", "token"],
}
NO_CLASSES = "the task 'brightness' isn't classification"


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A finished run of the task for each architecture, and one that classifies."""
    folder = tmp_path_factory.mktemp("tasks")
    for name, shape, task in (("tiny", "tiny", "brightness"), ("vit", "vit", "brightness"),
                              ("classifier", "vit", "classification")):  # fmt: skip
        with pytest.raises(SystemExit, match="^0$"):
            cli.main(["train", "digits", "--task", task, "--out", str(folder / name), *SMALL, *SHAPES[shape]])
    return folder


@pytest.fixture
def image(tmp_path):
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (8, 8)).astype("uint8")).save(tmp_path / "a.png")
    return tmp_path / "a.png"


def without_classes(tinyvit, run, *arguments):
    status, out, err = tinyvit("inspect", run, "--images", "2", "--out", "pictures", *arguments)
    assert (status, err) == (0, "")
    return out


def test_of_a_vit_all_is_drawn_that_needs_no_classes(tinyvit, runs):
    seen = json.loads(without_classes(tinyvit, runs / "vit", "--json", "--layer", "1", "--head", "0"))
    assert set(seen["pictures"]) == {
        "attention-layer-1-head-0.png", "patches-layer-1-head-0.png", "rollout.png", "positions.png", "filters.png",
        "distance.png", "spectrum.png", "norms.png", "receptive.png",
    }  # fmt: skip
    assert seen["left_out"] == dict.fromkeys(("class", "gradients", "most-wrong"), NO_CLASSES)
    assert set(seen["norms"]) == {"stream", "attn", "mlp"} and not {"predicted", "label", "class"} & set(seen)
    for name in seen["pictures"]:
        with Image.open(f"pictures/{name}") as picture:
            assert np.ptp(np.asarray(picture.convert("L"))) > 50
    out = without_classes(tinyvit, runs / "vit")
    assert "what the class token takes from each patch" in out and "taken for" not in out
    assert f"  no most-wrong: {NO_CLASSES}" in out


def test_of_an_architecture_without_attention_the_rest_is_drawn(tinyvit, runs, image):
    for which in (["--image", "3"], ["--image", image]):
        seen = json.loads(without_classes(tinyvit, runs / "tiny", "--json", *which))
        assert set(seen["pictures"]) == {
            "positions.png", "filters.png", "spectrum.png", "norms.png", "receptive.png"
        }
        no_attention = "Tiny has no attention over the same patches in every layer"
        assert {name: seen["left_out"][name] for name in ("class", "rollout", "distance", "most-wrong")} == {
            "class": NO_CLASSES, "rollout": no_attention, "distance": no_attention, "most-wrong": NO_CLASSES,
        }  # fmt: skip


@pytest.mark.parametrize("run", ["tiny", "vit"])
def test_what_is_about_classes_is_refused_with_the_task_and_with_what_there_is_instead(refused, runs, run, image):
    said = f"{NO_CLASSES}; tinyvit evaluate, features, inspect (not --html), knn and probe-linear work with it"
    assert said in refused("predict", runs / run, image)
    assert said in refused("inspect", runs / run, "--html", "page.html")
    assert f"--class is for a classifier, and {NO_CLASSES}" in refused("inspect", runs / run, "--class", "3")
    for option in (["--tta"], ["--confusion", "a.png"]):
        assert "'brightness'" in refused("evaluate", runs / run, *option)


@pytest.mark.parametrize("run", ["tiny", "vit"])
def test_the_model_gives_outputs_and_features_but_no_probabilities(runs, run):
    model, images = package.load(runs / run), np.zeros((2, 1, 8, 8), "float32")
    with pytest.raises(ValueError, match=f"{NO_CLASSES}; call the model for its output"):
        model.predict(images)
    assert model.classes == () and model(images)[0].shape == (2, 10) and model.features(images).shape[0] == 2
    assert package.load(runs / "classifier").predict(images).shape == (2, 10)


def test_a_summary_is_of_the_runs_model_and_says_what_the_task_trains_besides(tinyvit, runs):
    for run in ("tiny", "vit", "classifier"):
        status, out, err = tinyvit("summary", runs / run, "--batch-size", "3")
        assert (status, err) == (0, "")
        assert f"{package.load(runs / run).num_parameters():,}" in out
        assert ("the task 'brightness' trains 11 more parameters around this model" in out) == (run != "classifier")
    _, out, _ = tinyvit("summary", runs / "classifier", "--num-classes", "3", "--img-size", "16")
    model = package.ViT(replace(package.load(runs / "classifier").config, num_classes=3, img_size=16))
    assert f"{model.num_parameters():,}" in out


def test_the_gradients_of_a_runs_shape_are_checked(tinyvit, runs):
    status, out, _ = tinyvit("gradcheck", runs / "tiny", "--directions", "2")
    assert status == 0 and "WRONG" not in out and "tiny (" in out


@pytest.mark.parametrize("command", ["summary", "gradcheck"])
def test_what_is_neither_a_run_nor_a_models_name_is_refused(refused, runs, tmp_path, command):
    assert "unknown run folder or model 'runs/nowhere'" in refused(command, "runs/nowhere")
    assert "is not a run folder: it has no config.json" in refused(command, tmp_path)
    assert "configuration: unknown task 'x'" in refused(command, changed(runs, "vit", task="x"))


# -- a config.json that doesn't go with the weights -------------------------------------------------------------------


def changed(runs, run, **fields):
    """A copy of a run with other fields in its config.json."""
    copy = runs / f"changed-{len(list(runs.iterdir()))}"
    shutil.copytree(runs / run, copy)
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(config | fields))
    return copy


COMMANDS = (
    ("train", "--resume", "{run}"), ("evaluate", "{run}"), ("evaluate", "{run}", "--best"),
    ("features", "{run}", "{image}", "--out", "a.npy"), ("inspect", "{run}"), ("predict", "{run}", "{image}"),
)  # fmt: skip


@pytest.mark.parametrize(("run", "fields", "said"), [
    ("vit", {"task": "brightnes"}, "unknown task 'brightnes'; did you mean brightness?"),
    ("vit", {"architecture": "vitt"}, "unknown architecture 'vitt'; did you mean vit?"),
    ("vit", {"architecture": "tiny"}, "depth, drop_path_rate, … (16 in all) of the architecture 'tiny'"),
    ("vit", {"task": "classification"}, "unknown fields decay of the task 'classification'"),
    ("vit", {"task": "classification", "objective": {}}, "task is 'brightness', and config.json says 'classification'"),
    ("classifier", {"task": "brightness"}, "its task is 'classification', and config.json says 'brightness'"),
    ("vit", {"architecture": "tiny", "model": {}}, "its architecture is 'vit', and config.json says 'tiny'"),
])  # fmt: skip
def test_every_command_says_in_a_short_line_what_does_not_go_together(refused, runs, image, run, fields, said):
    copy = changed(runs, run, **fields)
    for command in COMMANDS:
        line = refused(*(argument.format(run=copy, image=image) for argument in command))
        assert said in line and len(line) < 400, line


def test_a_task_that_the_architecture_cannot_serve_is_named_by_every_command(refused, runs, image, monkeypatch):
    @dataclass(frozen=True)
    class Shape:
        img_size: int = 8
        in_chans: int = 1

    monkeypatch.setitem(registry.ARCHITECTURES, "shapeless", (tiny_architecture.Tiny, Shape))
    copy = changed(runs, "classifier", architecture="shapeless", model={"img_size": 8, "in_chans": 1})
    for command in COMMANDS:
        line = refused(*(argument.format(run=copy, image=image) for argument in command))
        assert "the architecture 'shapeless' can't serve the task 'classification': it has no num_classes" in line


def test_weights_of_another_shape_are_refused_in_a_short_line_where_no_manifest_says_what_they_are_of(refused, runs):
    copy = changed(runs, "vit", task="classification", objective={})
    (copy / "model.json").unlink()
    line = refused("evaluate", copy)
    assert "missing: cls_token, pos_embed" in line and "unexpected: model.blocks.0" in line and len(line) < 500, line
    assert "config.json names architecture 'vit', task 'classification'" in line
