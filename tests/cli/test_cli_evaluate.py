"""`tinyvit evaluate` and `tinyvit predict`, on a run and on imported weights."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from small_weights import WEIGHTS

from tinyvit import interop


def test_json_has_all_figures_they_are_consistent_and_the_table_says_the_same(as_json, succeeds, run):
    scores, summary = as_json("evaluate", run), json.loads((run / "summary.json").read_text())
    assert scores["test_loss"] == pytest.approx(summary["test_loss"], rel=1e-6) and scores["tta"] is False
    for name in ("test_accuracy", "parameters", "dataset"):
        assert scores[name] == summary[name]
    confusion = np.array(scores["confusion"])
    assert confusion.shape == (10, 10) and confusion.sum() == scores["images"] == 360
    assert scores["test_accuracy"] == np.trace(confusion) / 360
    assert list(scores["per_class"]) == list(scores["precision"]) == list("0123456789")
    np.testing.assert_allclose(list(scores["per_class"].values()), np.diag(confusion) / confusion.sum(1), rtol=1e-12)
    out = succeeds("evaluate", run)
    for name, value in (
        ("test accuracy", f"{100 * scores['test_accuracy']:.2f} %"),
        ("in the top 5", f"{100 * scores['top5_accuracy']:.2f} %"),
        ("test loss", f"{scores['test_loss']:.4f}"),
        ("calib. error", f"{100 * scores['ece']:.2f} %"),
        ("test images", "360 of digits"),
    ):
        assert f"  {name:<13}   {value}\n" in out
    rows = dict(re.findall(r"^  (\d) +\d+ +([\d.]+) %", out, re.MULTILINE))
    assert rows == {name: f"{100 * share:.2f}" for name, share in scores["per_class"].items()}


def test_averaging_over_mirror_images_changes_the_loss(as_json, run):
    plain, averaged = as_json("evaluate", run), as_json("evaluate", run, "--tta")
    assert averaged["tta"] is True and averaged["test_loss"] != plain["test_loss"]


def test_the_confusion_matrix_is_drawn_where_asked_and_nothing_else_is_written(succeeds, refused, run, tmp_path):
    succeeds("evaluate", run, "--confusion", "who is what.png")
    assert [path.name for path in tmp_path.iterdir()] == ["who is what.png"]
    assert (tmp_path / "who is what.png").read_bytes().startswith(b"\x89PNG")
    assert "confusion must end in .png, .svg, .pdf" in refused("evaluate", "no run", "--confusion", "confusion.txt")
    assert "is in nowhere, which doesn't exist" in refused("evaluate", "no run", "--confusion", "nowhere/a.png")


@pytest.fixture
def predictions(succeeds):
    """The objects that `predict … --json` prints."""
    return lambda *arguments: [json.loads(line) for line in succeeds("predict", *arguments, "--json").splitlines()]


def test_json_is_an_object_a_line_for_each_image_and_text_says_the_same(predictions, succeeds, run, photos):
    lines = predictions(run, photos)
    assert [line["image"] for line in lines] == [str(photos / f"{i}.png") for i in range(5)]
    for line in lines:
        shares = [entry["probability"] for entry in line["top"]]
        assert len(shares) == 5 and shares == sorted(shares, reverse=True) and 0 < sum(shares) <= 1 + 1e-12
        assert {entry["class"] for entry in line["top"]} < set("0123456789")
        first, *rows = succeeds("predict", run, line["image"]).splitlines()
        assert first == line["image"]
        expected = [(entry["class"], f"{100 * entry['probability']:.2f}") for entry in line["top"]]
        assert [re.match(r"  (\d) +([\d.]+) %", row).groups() for row in rows] == expected
        assert [row.count("█") for row in rows] == [round(20 * share) for share in shares]


def test_options_may_come_before_and_after_run_and_images(succeeds, run, photos):
    first, second = photos / "0.png", photos / "1.png"
    expected = succeeds("predict", run, first, second, "--json", "--top", "2")
    assert succeeds("predict", "--json", run, "--top=2", first, second) == expected
    assert succeeds("predict", "--top", "2", "--json", run, "--", first, second) == expected
    assert succeeds("predict", run, first, second, "--json", "--top", "2", "--tta") != expected


@pytest.mark.parametrize(("command", "key"), [(["predict"], "image"), (["features", "--out", "f.npy"], None)])
def test_unreadable_files_are_named_the_others_are_used_and_the_status_is_2(tinyvit, run, photos, command, key):
    with open("bad.png", "wb") as file:
        file.write(b"no image")
    status, out, err = tinyvit(*command, run, "bad.png", photos / "0.png", "missing.png", "--json")
    assert status == 2 and (json.loads(out)[key] == str(photos / "0.png") if key else json.loads(out)["images"] == 1)
    first, second = err.splitlines()
    assert first.startswith("tinyvit: error: bad.png can't be read")
    assert second == "tinyvit: error: missing.png can't be read as an image: No such file or directory"


@pytest.mark.parametrize(("arguments", "message"), [
    ("predict", "missing RUN: The folder of a run"),
    ("predict {run}", "expected a run folder and images.* and no image"),
    ("predict {run} {photos} --top few", "--top.*'few'"),
])  # fmt: skip
def test_an_invalid_command_line_is_refused(refused, run, photos, arguments, message):
    assert re.search(message, refused(*arguments.format(run=run, photos=photos).split()))


# -- a run whose weights and classes came from elsewhere, and a folder of images ---------------------------------------


@pytest.fixture
def imported(succeeds, tmp_path):
    """A run of the classes cat, dog and eel, and a folder of noise, of other sizes than the model's, by class."""
    interop.save(WEIGHTS, tmp_path / "timm", "timm")
    succeeds("import", "timm", "--out", "run")
    generator = np.random.default_rng(0)
    for name in ("dog", "cat"):
        (tmp_path / "test" / name).mkdir(parents=True)
        for i in range(10):
            pixels = generator.integers(0, 256, (int(generator.integers(20, 40)), 30, 3)).astype("uint8")
            Image.fromarray(pixels).save(tmp_path / "test" / name / f"{i}.png")
    (tmp_path / "train").symlink_to(tmp_path / "test")


def test_a_folder_has_some_of_the_classes_by_name_or_number(as_json, succeeds, imported, tmp_path):
    scores = as_json("evaluate", "run", "--data-dir", ".")
    tops = map(json.loads, succeeds("predict", "run", "test", "--json").splitlines())
    right = [Path(top["image"]).parent.name == top["top"][0]["class"] for top in tops]
    assert scores["images"] == len(right) == 20 and scores["test_accuracy"] == sum(right) / 20
    assert scores["per_class"].keys() == {"cat", "dog", "eel"} and scores["per_class"]["eel"] is None
    table = succeeds("evaluate", "run", "--data-dir", ".").partition("most often taken for")[2].splitlines()[1:]
    taken = np.array(scores["confusion"]).sum(0) > 0
    assert {line.split()[0] for line in table} == {"cat", "dog"} | ({"eel"} if taken[2] else set())
    for name, number in (("dog", "1"), ("cat", "0")):
        (tmp_path / "test" / name).rename(tmp_path / "test" / number)
        found = as_json("evaluate", "run", "--data-dir", ".")
        assert found["test_accuracy"] == scores["test_accuracy"] and found["confusion"] == scores["confusion"]


def test_a_folder_of_other_classes_is_refused(refused, imported, tmp_path):
    (tmp_path / "test" / "cat").rename(tmp_path / "test" / "crane")
    line = refused("evaluate", "run", "--data-dir", ".")
    assert "the model has no class 'crane' (1 of 2 folders have names that are not among its classes)" in line
    (tmp_path / "test" / "crane").rename(tmp_path / "test" / "1")
    assert "two of the folders 1, dog stand for the same class" in refused("evaluate", "run", "--data-dir", ".")
    assert "needs --data-dir" in refused("evaluate", "run")


def test_a_model_of_a_folder_predicts_without_the_folder(succeeds, as_json, predictions, refused, tmp_path):
    """It learns pictures of many sizes that are bright at the top or at the bottom."""
    generator = np.random.default_rng(0)
    for i in range(80):
        name, height, width = ("bottom", "top")[i % 2], *generator.integers(10, 40, 2)
        pixels = generator.integers(0, 80, (height, width, 3)).astype("uint8")
        pixels[slice(height // 2) if name == "top" else slice(height // 2, None)] += np.uint8(150)
        (tmp_path / "pictures" / name).mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(tmp_path / "pictures" / name / f"{i}.png")
    succeeds("train", "folder", "--data-dir", "pictures", "--out", "run", "--epochs", "12", "--batch-size", "16",
             "--model.img-size", "8", "--model.patch-size", "4", "--model.depth", "1", "--model.embed-dim", "16",
             "--model.num-heads", "4", "--augment.crop", "0", "--augment.policy", "none")  # fmt: skip
    scores = as_json("evaluate", "run")
    assert scores["images"] == 16 and set(scores["per_class"]) == {"bottom", "top"} and scores["test_accuracy"] >= 0.9
    (tmp_path / "pictures").rename(tmp_path / "elsewhere")
    (line,) = predictions("run", "elsewhere/top/1.png")
    assert line["top"][0]["class"] == "top" and len(line["top"]) == 2
    assert "pictures doesn't exist" in refused("evaluate", "run")
    assert as_json("evaluate", "run", "--data-dir", "elsewhere") == scores
