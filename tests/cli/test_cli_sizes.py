"""The commands on a run whose images keep their own size."""

import json

import numpy as np
import pytest
from PIL import Image

from tinyvit import load

SMALL = ["--architecture", "qwen_vision", "--model.row-tokens", "300", "--model.depth", "2", "--model.full-attention",
         "1", "--batch-size", "4", "--device", "cpu"]  # fmt: skip


@pytest.fixture
def photographs(tmp_path):
    """A folder of photographs of two classes, of 16 to 64 pixels a side."""
    generator = np.random.default_rng(0)
    for number in range(20):
        path = tmp_path / "photographs" / ("light", "dark")[number % 2] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        levels = generator.integers(0, 128, (*generator.integers(16, 65, 2), 3)) + 127 * (number % 2 == 0)
        Image.fromarray(levels.astype("uint8")).save(path)
    return tmp_path / "photographs"


@pytest.fixture
def run(trained, photographs):
    return trained("folder", *SMALL, "--data-dir", str(photographs), "--epochs", "8", "--augment.policy", "none")


def test_a_folder_is_trained_evaluated_and_predicted_with_images_at_their_own_size(run, photographs, as_json):
    summary = json.loads((run / "summary.json").read_text())
    found = as_json("evaluate", run)
    assert found["test_accuracy"] == summary["test_accuracy"] == 1
    assert found["test_loss"] == pytest.approx(summary["test_loss"], rel=1e-6)
    path, model = photographs / "dark" / "1.png", load(run)
    with Image.open(path) as image:
        alone = model.predict([image, image.rotate(90, expand=True)])[0]
    top = {entry["class"]: entry["probability"] for entry in as_json("predict", run, path)["top"]}
    assert top["dark"] > 0.9 and [top[name] for name in model.classes] == pytest.approx(alone, rel=1e-5)
    assert as_json("predict", run, path, "--tta")["top"][0]["class"] == "dark"
    assert as_json("knn", run, "--k", 3)["test_accuracy"] == 1


def test_what_has_no_place_in_a_row_is_refused_in_one_line(run, photographs, refused, tinyvit, tmp_path):
    Image.new("RGB", (100, 60)).save(tmp_path / "large.png")
    large = "large.png can't be read as an image: an image of 60×100 pixels has 384 patches, and a row at most 300"
    status, _, err = tinyvit("predict", run, tmp_path / "large.png")
    assert status == 2 and large in err and err.count("\n") == 1
    assert "patches, and a row at most 80; make images smaller, or rows longer by row_tokens" in refused(
        "train", "folder", *SMALL, "--data-dir", photographs, "--model.row-tokens", 80)  # fmt: skip
    assert "image size 32×32 is not a multiple of patch_size · merge_size = 10; resize to 30×30" in refused(
        "train", "sized-digits", "--model.patch-size", 5, "--model.img-size", 30)  # fmt: skip
    assert "several sizes; take --architecture qwen_vision and --model.row-tokens, or --resize-images" in refused(
        "train", "sized-digits", "--architecture", "vit")  # fmt: skip
    assert "augment.mixup and augment.cutmix must be 0 with model.row-tokens" in refused(
        "train", "sized-digits", "--augment.mixup", 0.5)  # fmt: skip
    assert "resize-images is not for model.row-tokens, which keeps images at their own size" in refused(
        "train", "sized-digits", "--resize-images")  # fmt: skip
    assert "model.row-tokens is for the task 'classification', got 'distillation'" in refused(
        "train", "sized-digits", "--task", "distillation")  # fmt: skip
