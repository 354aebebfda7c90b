"""The commands on a run of the task segmentation."""

import json

import numpy as np
import pytest
from PIL import Image

import tinyvit
from tinyvit.data import load

SMALL = ["--model.backbone.embed-dim", "16", "--model.backbone.depth", "1", "--model.backbone.patch-size", "8",
         "--images", "640", "--device", "cpu"]  # fmt: skip


@pytest.fixture
def run(trained):
    """The folder of a finished run."""
    return trained("segment-digits", *SMALL)


@pytest.fixture
def picture(tmp_path):
    path = tmp_path / "picture.png"
    Image.fromarray(load("segment-digits").test.images[0].transpose(1, 2, 0)).save(path)
    return path


def test_a_run_has_its_figures_and_is_read_back_with_its_classes(run, as_json):
    summary = json.loads((run / "summary.json").read_text())
    assert 0 < summary["mean_iou"] < summary["pixel_accuracy"] < 1
    found = as_json("evaluate", run)
    assert found["mean_iou"] == pytest.approx(summary["mean_iou"], abs=1e-6) and len(found["confusion"]) == 11
    model = tinyvit.load(run)
    assert model.classes == ("background", *"0123456789")
    assert model.predict(np.zeros((2, 32, 32, 3), "uint8")).shape == (2, 11, 32, 32)


def test_predict_prints_shares_of_pixels_and_draws_an_overlay(run, as_json, succeeds, picture, tmp_path):
    found = as_json("predict", run, picture, "--overlay", "out.png", "--top", 11)
    assert sum(entry["share"] for entry in found["pixels"]) == pytest.approx(1)
    with Image.open(tmp_path / "out.png") as drawn:
        assert min(drawn.size) > 200
    assert "background" in succeeds("predict", run, picture, picture)


def test_inspect_draws_the_backbone_and_where_the_pixels_are_wrong(run, as_json, tmp_path):
    found = as_json("inspect", run, "--out", tmp_path / "pictures", "--images", 2)
    assert {"pixels.png", "attention.png", "positions.png"} <= set(found["pictures"])
    assert 0 < found["wrong_pixels"] < 1 and len(found["labelled"]) == 8


@pytest.mark.parametrize("kind", ["segmenter", "backbone"])
def test_a_training_starts_from_a_segmenter_with_another_head_or_from_a_backbone(run, trained, tmp_path, kind):
    before = tinyvit.load(run)
    if kind == "backbone":
        tinyvit.save(before.backbone, tmp_path / "vit")
        run = tmp_path / "vit"
    other = trained("segment-digits", *SMALL, "--init.run", str(run), "--model.head", "linear", "--freeze", "trunk")
    weights, state = tinyvit.load(other).state_dict(), before.state_dict()
    assert all(np.array_equal(weights[name], state[name]) for name in state if name.startswith("backbone."))


def test_what_a_segmenter_has_not_is_refused_in_one_line(run, trained, refused, picture, tmp_path):
    digits = trained("digits", "--model.depth", "1", "--model.embed-dim", "16")
    assert "--overlay needs a run of the task segmentation, not of 'classification'" in refused(
        "predict", digits, picture, "--overlay", "out.png")  # fmt: skip
    assert "--overlay draws a single image, got 2" in refused(
        "predict", run, picture, picture, "--overlay", "out.png")  # fmt: skip
    assert "would replace the image itself" in refused("predict", run, picture, "--overlay", picture)
    assert "overlay must end in .png, .svg, .pdf" in refused("predict", run, picture, "--overlay", "out.txt")
    assert "--tta needs a classifier" in refused("predict", run, picture, "--tta")
    assert "expected data with a label for each image; name others by --data" in refused("knn", run)
    assert "the architecture 'clip' gives no feature maps" in refused(
        "train", "segment-digits", "--model.architecture", "clip")  # fmt: skip
    assert "needs a label for each pixel, but the data set has a label for each image" in refused(
        "train", "segment-digits", "--dataset", "digits", "--model.img-size", 8, "--model.in-chans", 1)  # fmt: skip
    assert "don't fit the backbone: they are for" in refused("train", "segment-digits", *SMALL, "--init.run", digits)
    assert "holds no images with masks; expected folders images/ and masks/" in refused(
        "train", "segment-digits", "--dataset", "folder", "--data-dir", tmp_path)  # fmt: skip
