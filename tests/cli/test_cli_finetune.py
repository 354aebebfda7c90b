"""`tinyvit finetune`, and the other commands on the run that it makes."""

import json
import re
import shutil

import numpy as np
import pytest
from PIL import Image
from small_cifar import small

from tinyvit import ViT, ViTConfig
from tinyvit.data import DATASETS, cifar
from tinyvit.tensors import tensor_bytes

TINY = ["--epochs", "1", "--batch-size", "25", "--device", "cpu"]
OTHERS = ["--classes", "8", "9", "--images", "50"]


@pytest.fixture
def tuned(tinyvit, run, tmp_path):
    path = tmp_path / "tuned"
    status, out, err = tinyvit("finetune", run, "--data", "digits", *OTHERS, "--img-size", "16", "--out", path, *TINY)
    assert (status, err) == (0, "")
    assert "50 training and 71 test images of 16×16, 2 classes" in out and "test accuracy" in out
    return path


def test_its_run_is_like_any_other(tinyvit, tuned, tmp_path):
    status, out, err = tinyvit("evaluate", tuned, "--json", "--device", "cpu")
    assert (status, err) == (0, "")
    found, summary = json.loads(out), json.loads((tuned / "summary.json").read_text())
    assert found["test_accuracy"] == summary["test_accuracy"] and list(found["per_class"]) == ["8", "9"]
    Image.new("RGB", (30, 20), "grey").save(tmp_path / "photo.png")
    status, out, err = tinyvit("predict", tuned, tmp_path / "photo.png", "--json")
    assert (status, err) == (0, "") and {top["class"] for top in json.loads(out)["top"]} == {"8", "9"}
    assert tinyvit("inspect", tuned, "--image", "3", "--out", tmp_path / "seen", "--device", "cpu")[0] == 0


def test_it_is_resumed_as_any_other(tinyvit, tuned):
    before = (tuned / "model.safetensors").read_bytes()
    for file in (tuned / "summary.json", tuned / "model.safetensors", *tuned.glob("checkpoints/*-epoch-1.*")):
        file.unlink()
    status, _, err = tinyvit("train", "--resume", tuned)
    assert (status, err) == (0, "") and (tuned / "model.safetensors").read_bytes() == before


def test_a_fine_tuned_model_can_be_fine_tuned(tinyvit, tuned, tmp_path):
    options = ["--data", "digits", "--freeze", "trunk", "--images", "100", *TINY, "--out", tmp_path / "again"]
    assert tinyvit("finetune", tuned, *options)[0] == 0
    config = json.loads((tmp_path / "again" / "config.json").read_text())
    assert config["model"]["img_size"] == 16 and config["model"]["num_classes"] == 10
    assert config["init"]["run"] == str(tuned) and config["freeze"] == "trunk"


@pytest.fixture
def photos(tmp_path):
    """A folder of images of two classes."""
    for name, level in (("dark", 20), ("light", 220)):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for i in range(5):
            Image.new("L", (20, 30), level + i).save(tmp_path / "photos" / name / f"{i}.png")
    return tmp_path / "photos"


def test_a_model_is_fine_tuned_on_a_folder_of_images(tinyvit, run, tmp_path, photos):
    options = ["--data", "folder", "--data-dir", photos, *TINY]
    assert tinyvit("finetune", run, *options)[0] == 0
    kept = json.loads((tmp_path / "runs" / "folder-finetuned" / "preprocessing.json").read_text())
    before = json.loads((run / "preprocessing.json").read_text())
    assert kept["classes"] == ["dark", "light"]
    assert (kept["mean"], kept["std"]) == (before["mean"], before["std"])


@pytest.mark.parametrize("out", ["photos", "photos/run", "photos/dark/run", "photos/../photos", None])
def test_a_run_is_not_written_among_the_images(refused, run, photos, monkeypatch, out):
    before = sorted(photos.rglob("*"))
    if out is None:  # the default is runs/ in the working directory
        monkeypatch.chdir(photos)
    options = ["--out", out] if out else []
    message = refused("finetune", run, "--data", "folder", "--data-dir", photos, *TINY, *options)
    assert f"{out or 'runs/folder-finetuned'} is among the images in {photos}" in message
    assert sorted(photos.rglob("*")) == before


def test_a_tilde_is_expanded_in_every_path(tinyvit, run, tmp_path, monkeypatch):
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    Image.new("L", (8, 8), 100).save(home / "image.png")
    assert tinyvit("finetune", run, "--data", "digits", *OTHERS, *TINY, "--out=~/tuned")[0] == 0
    for command in (
        "evaluate ~/tuned --confusion ~/confusion.png", "inspect ~/tuned --image ~/image.png --out ~/pictures",
        "inspect ~/tuned --images 2 --html ~/page.html", "export ~/tuned --format timm --out ~/timm",
        f"features ~/tuned {home / 'image.png'} --out ~/features.npy --names ~/names.txt",
    ):  # fmt: skip
        status, _, err = tinyvit(*command.split(), *["--device", "cpu"] * (not command.startswith("export")))
        assert (status, err) == (0, "")
    assert {path.name for path in home.iterdir()} == {
        "image.png", "tuned", "confusion.png", "pictures", "page.html", "timm", "features.npy", "names.txt",
    }  # fmt: skip
    assert not (tmp_path / "~").exists()


def test_imported_weights_are_fine_tuned_even_if_they_have_no_head(tinyvit, tmp_path):
    model = ViT(ViTConfig(img_size=8, in_chans=1, num_classes=0, embed_dim=16, depth=2, num_heads=2, mlp_ratio=2.0))
    (tmp_path / "foreign.safetensors").write_bytes(tensor_bytes(model.state_dict()))
    given = ["--num-heads", "2", "--img-size", "8", "--mean", "0.25", "--std", "0.5"]
    status, out, err = tinyvit("import", tmp_path / "foreign.safetensors", "--out", tmp_path / "imported", *given)
    assert status == 0, err
    options = ["--data", "digits", "--images", "100", "--out", tmp_path / "tuned", *TINY]
    status, out, err = tinyvit("finetune", tmp_path / "imported", *options)
    assert (status, err) == (0, "") and "10 classes" in out
    kept = json.loads((tmp_path / "tuned" / "preprocessing.json").read_text())
    assert (kept["mean"], kept["std"], kept["scale"]) == ([0.25], [0.5], 16.0)
    assert tinyvit("evaluate", tmp_path / "tuned", "--device", "cpu")[0] == 0
    assert tinyvit("export", tmp_path / "tuned", "--format", "timm", "--out", tmp_path / "back")[0] == 0


def test_its_options_are_explained(tinyvit):
    status, out, _ = tinyvit("finetune", "--help")
    assert status == 0
    assert all(option in out for option in ("--data ", "--img-size", "--freeze", "--classes", "--optim.layer-decay"))
    assert "by default the paper's recipe" in " ".join(re.sub("[│|]", " ", out).split())


@pytest.mark.parametrize(("options", "message"), [
    ("", "missing RUN: The folder of a run"),
    ("nowhere --data digits", "nowhere is not a run folder: it doesn't exist"),
    ("{run}", "--data"),
    ("{run} --data mnist", "--data"),
    ("{run} --data folder", "--data-dir"),
    ("{run} --data digits --img-size 10", "10×10 is not a multiple of the patch size 4×4"),
    ("{run} --data digits --freeze 2", r"freeze must be embed .*; the model has 1 layers, got '2'"),
    ("{run} --data digits --classes", "expected names after --classes, got none"),
    ("{run} --classes --data digits", "expected names after --classes, got none"),
    ("{run} --data digits --classes 8 nine", "no class 'nine'"),
    ("{run} --data digits --images 3000", "class 0 has"),
    ("{run} --data digits --resize-positions nearest", "resize-positions"),
    ("{run} --data digits --optim.lr -1", "optim.lr must be a positive finite number, got -1"),
    ("{unfinished} --data digits", r"model\.safetensors is missing; finish the run with tinyvit train --resume"),
    ("{run} --data digits --out {run}", "already holds a run"),
    ("{run} --data digits --bets", "--best"),
])  # fmt: skip
def test_a_fine_tuning_that_is_impossible_is_refused_before_a_run_begins(refused, run, tmp_path, options, message):
    unfinished = tmp_path / "unfinished"
    shutil.copytree(run, unfinished)
    (unfinished / "model.safetensors").unlink()
    before = {file: file.read_bytes() for file in run.rglob("*") if file.is_file()}
    arguments = options.format(run=run, unfinished=unfinished).split()
    assert re.search(message, refused("finetune", *arguments))
    assert not (tmp_path / "runs").exists()
    assert {file: file.read_bytes() for file in run.rglob("*") if file.is_file()} == before


def test_a_model_of_grey_images_is_refused_for_coloured_ones(refused, run, monkeypatch):
    spec, contents = small(cifar.CIFAR10, images=20)
    rows = {name: np.frombuffer(content, "uint8").reshape(20, -1) for name, content in contents.items()}
    monkeypatch.setitem(DATASETS, "cifar10", lambda data_dir: cifar.as_split(spec, rows))
    line = refused("finetune", run, "--data", "cifar10")
    assert "the model reads images with 1 channel, and those of the data set have 3 channels" in line
