"""--classes and --images: training on some classes and some images of a data set."""

import json
import re

import pytest

from tinyvit import data

CHOICE = ["--classes", "7", "1", "4", "--images", "30"]
TINY = ["--model.embed-dim", "16", "--model.depth", "1", "--batch-size", "10", "--device", "cpu", "--epochs", "1"]


@pytest.fixture
def chosen(tinyvit, tmp_path):
    """A run on three classes and thirty images."""
    path = tmp_path / "chosen"
    status, out, err = tinyvit("train", "digits", *CHOICE, *TINY, "--out", path)
    assert (status, err) == (0, "") and "test accuracy" in out
    return path


def test_a_run_on_some_classes_has_as_many_logits_and_says_so(chosen):
    config = json.loads((chosen / "config.json").read_text())
    assert config["classes"] == ["7", "1", "4"] and config["images"] == 30 and config["model"]["num_classes"] == 3
    assert json.loads((chosen / "preprocessing.json").read_text())["classes"] == ["7", "1", "4"]
    assert json.loads((chosen / "summary.json").read_text())["steps"] == 3


def test_it_is_evaluated_on_all_test_images_of_its_classes(tinyvit, chosen):
    status, out, err = tinyvit("evaluate", chosen, "--json", "--device", "cpu")
    assert (status, err) == (0, "")
    found = json.loads(out)
    assert list(found["per_class"]) == ["7", "1", "4"]
    assert found["images"] == len(data.choose(data.digits(), ("7", "1", "4")).test)


def test_images_are_drawn_from_those_that_are_not_held_out_for_tuning(tinyvit, tmp_path):
    options = ["--classes", "0", "1", "--validation", "0.5", "--images", "140", *TINY]
    assert tinyvit("train", "digits", *options, "--out", tmp_path / "tuned")[0] == 0
    assert json.loads((tmp_path / "tuned" / "summary.json").read_text())["steps"] == 14


@pytest.mark.parametrize(("options", "message"), [
    ("--classes 7 seven", "no class 'seven'; it has 0, 1, 2"),
    ("--classes 7", "at least two classes, got 7"),
    ("--classes 7 1 7", "each class once, got 7 2 times"),
    ("--images 0", "images must be a positive int or None, got 0"),
    ("--images 15", "as many images of each of 10 classes, such as 20 in all, got 15"),
    ("--images 50000", r"5000 of each class, but class 0 has \d+ to train on"),
    ("--classes 0 1 --validation 0.5 --images 200", r"100 of each class, but class 0 has 71 to train on"),
])  # fmt: skip
def test_classes_and_images_that_the_data_lack_are_refused_before_a_run_begins(refused, tmp_path, options, message):
    assert re.search(message, refused("train", "digits", *options.split(), *TINY, "--out", tmp_path / "run"))
    assert not (tmp_path / "run").exists()
