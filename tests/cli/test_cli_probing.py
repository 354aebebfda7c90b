"""tinyvit probe-linear and tinyvit knn."""

import json
import re
import shutil
from collections import Counter

import numpy as np
import pytest
from PIL import Image

from tinyvit import data
from tinyvit.training import features_by_layer
from tinyvit.training.feature_classifiers import STRENGTHS, linear_probe, nearest_neighbours
from tinyvit.training.run_folder import RunFolder
from tinyvit.training.trained import load_trained

COMMANDS = {"probe-linear": linear_probe, "knn": nearest_neighbours}
BOTH = pytest.mark.parametrize("command", COMMANDS)


def as_json(tinyvit, *arguments):
    status, out, err = tinyvit(*arguments, "--json")
    assert (status, err) == (0, "")
    return json.loads(out)


def examples(run, split, layer=None, pool=None):
    """The features and labels that the library gives a classifier."""
    model = load_trained(run, "cpu").model
    return [(features_by_layer(model, part, [layer], pool=pool)[0], part.labels) for part in split]


@pytest.fixture
def headless(run, tmp_path):
    """A copy of the run whose model has no head and no classes."""
    path = shutil.copytree(run, tmp_path / "headless")
    for name, change in (
        ("config.json", lambda content: content["model"].update(num_classes=0)),
        ("preprocessing.json", lambda content: content.update(classes=[])),
    ):
        content = json.loads((path / name).read_text())
        change(content)
        (path / name).write_text(json.dumps(content))
    weights = RunFolder(run).load_model()
    RunFolder(path).save_model({name: array for name, array in weights.items() if not name.startswith("head.")})
    return path


@BOTH
def test_the_accuracy_is_that_of_the_library(tinyvit, run, command):
    found = as_json(tinyvit, command, run)
    split = data.digits()
    expected = COMMANDS[command](*examples(run, split))
    assert found["test_accuracy"] == expected.accuracy > 0.5
    assert (found["layer"], found["pool"], found["features"]) == (None, "mean", 16)
    assert (found["dataset"], found["train_images"], found["test_images"]) == ("digits", 1437, 360)
    assert found["classes"] == list("0123456789")
    if command == "knn":
        assert (found["k"], found["temperature"]) == (20, 0.07)
    else:
        assert found["C"] == expected.C
        assert [(trial["C"], trial["accuracy"]) for trial in found["tried"]] == list(expected.tried)


@BOTH
def test_the_table_says_the_same_as_json(tinyvit, run, command):
    found = as_json(tinyvit, command, run)
    status, out, err = tinyvit(command, run)
    assert (status, err) == (0, "")
    rows = dict(re.findall(r"^  (\S.*?) {3,}(\S.*)$", out, re.MULTILINE))
    assert rows["test accuracy"] == f"{100 * found['test_accuracy']:.2f} %"
    assert rows["features"] == "16: mean over the patches as the head reads it"
    assert rows["training images"] == "1,437 of digits, 10 classes" and rows["test images"] == "360"
    if command == "knn":
        assert (rows["k"], rows["temperature"]) == ("20", "0.07")
    else:
        held = {trial["C"]: trial["accuracy"] for trial in found["tried"]}
        assert rows["C"] == f"{found['C']:g}" and rows["held out for C"] == f"{100 * held[found['C']]:.2f} %"


@BOTH
def test_all_layers_together_give_the_result_of_each_alone(tinyvit, run, command):
    together = as_json(tinyvit, command, run, "--layer", "all", "--pool", "token")
    assert [row["layer"] for row in together["layers"]] == [0, 1, None]
    for row in together["layers"]:
        layer = [] if row["layer"] is None else ["--layer", row["layer"]]
        alone = as_json(tinyvit, command, run, "--pool", "token", *layer)
        assert {name: alone[name] for name in row} == row
    # Before the first block the class token holds nothing of the image, so every prediction is the same class.
    assert together["layers"][0]["test_accuracy"] in {
        count / 360 for count in Counter(data.digits().test.labels.tolist()).values()
    }
    _, out, _ = tinyvit(command, run, "--layer", "all", "--pool", "token")
    for place, row in zip(("before the first layer", "after layer 1 of 1", "as the head reads it"), together["layers"]):
        assert re.search(rf"^  {place} +{100 * row['test_accuracy']:.2f} %", out, re.MULTILINE)


@BOTH
def test_selected_classes_and_images_are_those_that_a_training_would_use(tinyvit, run, command):
    found = as_json(tinyvit, command, run, "--classes", "7", "1", "4", "--images", "60", "--seed", "5")
    assert (found["classes"], found["train_images"]) == (["7", "1", "4"], 60)
    split = data.choose(data.digits(), ("7", "1", "4"), 60, seed=5)
    train, test = examples(run, split)
    options = {"seed": 5} if command == "probe-linear" else {}
    assert found["test_accuracy"] == COMMANDS[command](train, test, **options).accuracy
    assert found["test_images"] == len(split.test)


@BOTH
def test_a_model_without_a_head_is_probed_as_the_same_one_with_it(tinyvit, run, headless, command):
    options = ["--layer", "all", "--images", "200"]
    assert as_json(tinyvit, command, headless, *options) == as_json(tinyvit, command, run, *options)


def test_votes_and_strength_follow_the_options(tinyvit, run):
    train, test = examples(run, data.digits())
    found = as_json(tinyvit, "knn", run, "--k", "3", "--temperature", "0.5")
    assert (found["k"], found["temperature"]) == (3, 0.5)
    assert found["test_accuracy"] == nearest_neighbours(train, test, k=3, temperature=0.5).accuracy
    found = as_json(tinyvit, "probe-linear", run, "--C", "0.5")
    assert (found["C"], found["tried"]) == (0.5, [])
    assert found["test_accuracy"] == linear_probe(train, test, C=0.5).accuracy
    assert "held out" not in tinyvit("probe-linear", run, "--C", "0.5")[1]
    assert len(as_json(tinyvit, "probe-linear", run, "--images", "100")["tried"]) == len(STRENGTHS)


@pytest.fixture
def brightness(tmp_path):
    """A folder of dark and light grey pictures."""
    generator = np.random.default_rng(0)
    for name in ("dark", "light"):
        (tmp_path / "pictures" / name).mkdir(parents=True)
        for i in range(15):
            pixels = generator.integers(0, 100, (12, 12)) + 150 * (name == "light")
            Image.fromarray(pixels.astype("uint8")).save(tmp_path / "pictures" / name / f"{i}.png")
    return tmp_path / "pictures"


@BOTH
def test_classes_other_than_the_runs_can_be_probed(tinyvit, run, command, brightness):
    found = as_json(tinyvit, command, run, "--data", "folder", "--data-dir", brightness)
    assert (found["dataset"], found["classes"], found["test_images"]) == ("folder", ["dark", "light"], 6)
    assert found["test_accuracy"] == 1.0


@BOTH
def test_images_are_prepared_by_the_runs_own_mean_and_std(tinyvit, run, tmp_path, command, brightness):
    """The classified features of a folder's images are those that `tinyvit features` writes for the files."""
    split = data.folder(brightness, (8, 8), 1)
    prepared = load_trained(run, "cpu").preprocessing
    split = data.Split(*(
        data.Dataset(part.images, part.labels, part.classes, prepared.mean, prepared.std) for part in split
    ))  # fmt: skip
    expected = COMMANDS[command](*examples(run, split, **{"layer": 0, "pool": "mean"}))
    found = as_json(
        tinyvit, command, run, "--data", "folder", "--data-dir", brightness, "--layer", "0", "--pool", "mean"
    )  # fmt: skip
    assert found["test_accuracy"] == expected.accuracy


@BOTH
def test_an_invalid_command_line_is_refused(refused, run, tmp_path, command):
    for arguments, message in (
        ([run, "--layer", "2"], "no layer 2; the model has 0 to 1, or from the end −1 to −2"),
        ([run, "--layer", "last"], "expected --layer as a number, or all, got 'last'"),
        ([run, "--layer", "--"], "layer"),
        ([run, "--pool", "max"], "'max'.*--pool"),
        ([run, "--data", "mnist"], "'mnist'.*cifar10"),
        ([run, "--data", "folder"], "the data set 'folder' needs --data-dir"),
        ([run, "--data", "folder", "--data-dir", "nowhere"], "nowhere doesn't exist"),
        ([run, "--data-dir", "."], "digits are built in; leave out --data-dir"),
        ([run, "--classes"], "expected names after --classes, got none"),
        ([run, "--classes", "--json"], "expected names after --classes, got none"),
        ([run, "--classes", "0", "ten"], "no class 'ten'; it has 0, 1, 2"),
        ([run, "--classes", "0"], "at least two classes, got 0"),
        ([run, "--images", "15"], "as many images of each of 10 classes"),
        ([run, "--images", "0"], "as many images of each of 10 classes"),
        ([run, "--images", "50000"], r"5000 of each class, but class 0 has \d+"),
        ([run, "--seed", "-1"], "a seed of at least 0, got -1"),
    ):
        assert re.search(message, refused(command, *arguments)), message
    assert not any(tmp_path.iterdir())


def test_invalid_votes_and_strengths_are_refused(refused, run):
    for arguments, message in (
        (["knn", run, "--k", "0"], r"a k \(--k; by default 20\) from 1 to 1437, the number of training images, got 0"),
        (["knn", run, "--k", "31", "--images", "30"], r"\(--k; .* from 1 to 30, the number of training images, got 31"),
        (["knn", run, "--images", "10"], r"\(--k; by default 20\) from 1 to 10, the number of training images, got 20"),
        (["knn", run, "--temperature", "0"], r"a temperature above 0 and finite, got 0\.0"),
        (["knn", run, "--C", "1"], "--C"),
        (["probe-linear", run, "--k", "1"], "--k"),
        (["probe-linear", run, "--C", "0"], r"a C above 0 and finite, got 0\.0"),
        (["probe-linear", run, "--images", "10"], "every class has a single training image.*give C"),
    ):
        assert re.search(message, refused(*arguments)), message
