"""`tinyvit finetune`, and the other commands on the run that it makes."""

import json
import re

import pytest
from PIL import Image

from tinyvit import ViT, ViTConfig
from tinyvit.tensors import tensor_bytes

TINY = ["--epochs", "1", "--batch-size", "25", "--device", "cpu"]
OTHERS = ["--data", "digits", "--classes", "8", "9", "--images", "50"]


def test_its_run_is_used_resumed_and_fine_tuned_like_any_other(succeeds, as_json, run, photos, tmp_path):
    out = succeeds("finetune", run, *OTHERS, "--img-size", "16", "--out", "tuned", *TINY)
    assert "50 training and 71 test images of 16×16, 2 classes" in out and "test accuracy" in out
    found, summary = as_json("evaluate", "tuned"), json.loads((tmp_path / "tuned" / "summary.json").read_text())
    assert found["test_accuracy"] == summary["test_accuracy"] and list(found["per_class"]) == ["8", "9"]
    assert {top["class"] for top in as_json("predict", "tuned", photos / "0.png")["top"]} == {"8", "9"}

    weights = tmp_path / "tuned" / "model.safetensors"
    before = weights.read_bytes()
    for file in (weights.with_name("summary.json"), weights, *tmp_path.glob("tuned/checkpoints/*-epoch-1.*")):
        file.unlink()
    succeeds("train", "--resume", "tuned")
    assert weights.read_bytes() == before

    succeeds("finetune", "tuned", "--data", "digits", "--freeze", "trunk", "--images", "100", *TINY, "--out", "again")
    config = json.loads((tmp_path / "again" / "config.json").read_text())
    assert config["model"]["img_size"] == 16 and config["model"]["num_classes"] == 10
    assert config["init"]["run"] == str(tmp_path / "tuned") and config["freeze"] == "trunk"


BY_NAME = "finetune tiny --data digits", "train digits --init.run tiny --model.depth 1 --model.embed-dim 16"


@pytest.mark.parametrize("command", BY_NAME)
def test_a_training_starts_from_a_model_that_comes_with_tinyvit(succeeds, run, tmp_path, monkeypatch, command):
    monkeypatch.setattr("tinyvit.training.run_folder.stored_models", lambda: {"tiny": run})
    assert succeeds("summary", "tiny") == succeeds("summary", run)
    succeeds(*command.split(), "--out", "tuned", *TINY)
    assert json.loads((tmp_path / "tuned" / "config.json").read_text())["init"]["run"] == str(run)


@pytest.fixture
def pictures(tmp_path):
    """A folder of images of two classes."""
    for name, level in (("dark", 20), ("light", 220)):
        (tmp_path / "pictures" / name).mkdir(parents=True)
        for i in range(5):
            Image.new("L", (20, 30), level + i).save(tmp_path / "pictures" / name / f"{i}.png")
    return tmp_path / "pictures"


def test_a_model_is_fine_tuned_on_a_folder_of_images(succeeds, run, tmp_path, pictures):
    succeeds("finetune", run, "--data", "folder", "--data-dir", pictures, *TINY)
    kept = json.loads((tmp_path / "runs" / "folder-finetuned" / "preprocessing.json").read_text())
    before = json.loads((run / "preprocessing.json").read_text())
    assert kept["classes"] == ["dark", "light"]
    assert (kept["mean"], kept["std"]) == (before["mean"], before["std"])


@pytest.mark.parametrize("out", ["pictures", "pictures/dark/run", "pictures/../pictures", None])
def test_a_run_is_not_written_among_the_images(refused, run, pictures, monkeypatch, out):
    if out is None:  # the default is runs/ in the working directory
        monkeypatch.chdir(pictures)
    message = refused("finetune", run, "--data", "folder", "--data-dir", pictures, *(["--out", out] if out else []))
    assert f"{out or 'runs/folder-finetuned'} is among the images in {pictures}" in message


def test_a_tilde_is_expanded_in_every_path(succeeds, run, tmp_path, monkeypatch):
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    Image.new("L", (8, 8), 100).save(home / "image.png")
    for command in (
        f"finetune {run} {' '.join(OTHERS + TINY)} --out=~/tuned",
        "evaluate ~/tuned --confusion ~/confusion.png", "inspect ~/tuned --image ~/image.png --out ~/pictures",
        "inspect ~/tuned --images 2 --html ~/page.html", "export ~/tuned --format timm --out ~/timm",
        f"features ~/tuned {home / 'image.png'} --out ~/features.npy --names ~/names.txt",
    ):  # fmt: skip
        succeeds(*command.split())
    assert {path.name for path in home.iterdir()} == {
        "image.png", "tuned", "confusion.png", "pictures", "page.html", "timm", "features.npy", "names.txt",
    }  # fmt: skip
    assert not (tmp_path / "~").exists()


def test_imported_weights_are_fine_tuned_even_if_they_have_no_head(succeeds, tmp_path):
    model = ViT(ViTConfig(img_size=8, in_chans=1, num_classes=0, embed_dim=16, depth=2, num_heads=2, mlp_ratio=2.0))
    (tmp_path / "foreign.safetensors").write_bytes(tensor_bytes(model.state_dict()))
    given = ["--num-heads", "2", "--img-size", "8", "--mean", "0.25", "--std", "0.5"]
    succeeds("import", "foreign.safetensors", "--out", "imported", *given)
    assert "10 classes" in succeeds("finetune", "imported", "--data", "digits", "--images", "100", "--out", "a", *TINY)
    kept = json.loads((tmp_path / "a" / "preprocessing.json").read_text())
    assert (kept["mean"], kept["std"], kept["scale"]) == ([0.25], [0.5], 16.0)
    succeeds("evaluate", "a")
    succeeds("export", "a", "--format", "timm", "--out", "back")


@pytest.mark.parametrize(("options", "message"), [
    ("", "missing RUN: The folder of a run"),
    ("nowhere --data digits", "nowhere is not a run folder: it doesn't exist"),
    ("{run}", "--data"),
    ("{run} --data mnist", "--data"),
    ("{run} --data folder", "--data-dir"),
    ("{run} --classes --data digits", "expected names after --classes, got none"),
    ("{run} --data digits --out {run}", "already holds a run"),
    ("{run} --data digits --bets", "--best"),
])  # fmt: skip
def test_a_fine_tuning_that_is_impossible_is_refused_before_a_run_begins(refused, run, options, message):
    assert re.search(message, refused("finetune", *options.format(run=run).split()))
