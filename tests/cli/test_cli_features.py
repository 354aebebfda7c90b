"""tinyvit features, probe-linear and knn."""

import json
import re
import shutil

import numpy as np
import pytest

from tinyvit import data
from tinyvit.training.feature_classifiers import STRENGTHS, linear_probe, nearest_neighbours
from tinyvit.training.features import features, features_by_layer
from tinyvit.training.trained import load_trained

COMMANDS = {"probe-linear": linear_probe, "knn": nearest_neighbours}
BOTH = pytest.mark.parametrize("command", COMMANDS)
NAMES = [f"{i}.png" for i in range(5)]


def test_a_row_for_each_image_is_written_and_its_path_beside_it(succeeds, run, photos, tmp_path):
    out = succeeds("features", run, photos / "3.png", photos, "--out", "f.npy")
    rows = np.load(tmp_path / "f.npy")
    assert (rows.dtype, rows.shape) == ("float32", (6, 16)) and "16: mean over the patches as the head reads it" in out
    assert (tmp_path / "f.txt").read_text().splitlines() == [str(photos / name) for name in ["3.png", *NAMES]]
    assert sorted(file.name for file in tmp_path.iterdir()) == ["f.npy", "f.txt"]


@pytest.mark.parametrize(("layer", "pool"), [(0, "token"), (1, "mean"), (-1, None), (None, "token")])
def test_layers_and_pools_are_those_of_the_library(as_json, run, photos, tmp_path, layer, pool):
    options = [*(() if layer is None else ("--layer", layer)), *(() if pool is None else ("--pool", pool))]
    assert as_json("features", *options, run, photos, "--out=f.npy", "--names", "list") == {
        "images": 5, "unreadable": 0, "features": 16, "layer": 1 if layer == -1 else layer, "pool": pool or "mean",
        "out": "f.npy", "names": "list",
    }  # fmt: skip
    trained = load_trained(run, "cpu")
    images = trained.preprocessing(np.stack(trained.preprocessing.read([photos / name for name in NAMES])))
    expected = features(trained.model, images, layer=layer, pool=pool)
    np.testing.assert_allclose(np.load(tmp_path / "f.npy"), expected, rtol=1e-5, atol=1e-6)


def test_line_breaks_in_names_are_escaped_in_their_list_and_without_rows_nothing_is_written(
    tinyvit, succeeds, run, photos, tmp_path
):
    shutil.copy(photos / "2.png", tmp_path / "line\nbreak.png")
    status, out, err = tinyvit("features", run, "missing.png", "--out", "f.npy", "--json")
    assert status == 2 and json.loads(out)["out"] is None and json.loads(out)["unreadable"] == 1
    assert "missing.png can't be read" in err and [path.name for path in tmp_path.iterdir()] == ["line\nbreak.png"]
    succeeds("features", run, "line\nbreak.png", "--out", "f.npy")
    assert (tmp_path / "f.txt").read_text() == "line\\nbreak.png\n"


@pytest.mark.parametrize(("arguments", "message"), [
    ("--out f.npy", "expected a run folder and images.* and no image"),
    ("{photos}", "--out"),
    ("{photos} --out f.npy --layer 2", "no layer 2; the model has 0 to 1, or from the end −1 to −2"),
    ("{photos} --out f.npy --layer all", "--layer.*'all'"),
    ("{photos} --out f.npy --pool max", "'max'.*--pool"),
    ("{photos} --out f.npy --names f.npy", r"both be written to f\.npy"),
    ("{photos} --out f.npy --names mine.npy", "mine.npy is there already"),
])  # fmt: skip
def test_invalid_features_are_refused(refused, run, photos, tmp_path, arguments, message):
    (tmp_path / "mine.npy").write_bytes(b"precious")
    assert re.search(message, refused("features", run, *arguments.format(photos=photos).split()))


# -- probe-linear and knn ---------------------------------------------------------------------------------------------


def examples(run, split, layer=None, pool=None):
    """The features and labels that the library gives a classifier."""
    model = load_trained(run, "cpu").model
    return [(features_by_layer(model, part, [layer], pool=pool)[0], part.labels) for part in split]


@BOTH
def test_the_accuracy_is_that_of_the_library_and_the_table_says_the_same(as_json, succeeds, run, command):
    found = as_json(command, run)
    expected = COMMANDS[command](*examples(run, data.digits()))
    assert found["test_accuracy"] == expected.accuracy > 0.5
    assert (found["layer"], found["pool"], found["features"]) == (None, "mean", 16)
    assert (found["dataset"], found["train_images"], found["test_images"]) == ("digits", 1437, 360)
    assert found["classes"] == list("0123456789")
    header, _, cells, _, *facts = succeeds(command, run).splitlines()
    rows = dict(zip(re.split(" {2,}", header.strip()), re.split(" {2,}", cells.strip()), strict=True))
    rows |= dict(re.fullmatch(r"  (\S.*?) {3,}(\S.*)", fact).groups() for fact in facts)
    assert rows["test accuracy"] == f"{100 * found['test_accuracy']:.2f} %"
    assert (rows["layer"], rows["features"], rows["pool"]) == ("as the head reads it", "16", "mean over the patches")
    assert rows["training images"] == "1,437 of digits, 10 classes" and rows["test images"] == "360"
    if command == "knn":
        assert (found["k"], found["temperature"]) == (20, 0.07)
        assert (rows["k"], rows["temperature"]) == ("20", "0.07")
    else:
        assert [(trial["C"], trial["accuracy"]) for trial in found["tried"]] == list(expected.tried)
        held = dict(expected.tried)[found["C"]]
        assert rows["C"] == f"{found['C']:g}" and rows["held out for C"] == f"{100 * held:.2f} %"


@BOTH
def test_all_layers_together_give_the_result_of_each_alone(as_json, succeeds, run, command):
    together = as_json(command, run, "--layer", "all", "--pool", "token")
    assert [row["layer"] for row in together["layers"]] == [0, 1, None]
    for row in together["layers"]:
        layer = [] if row["layer"] is None else ["--layer", row["layer"]]
        alone = as_json(command, run, "--pool", "token", *layer)
        assert {name: alone[name] for name in row} == row
    out = succeeds(command, run, "--layer", "all", "--pool", "token")
    for place, row in zip(("before the first layer", "after layer 1 of 1", "as the head reads it"), together["layers"]):
        assert re.search(rf"^  {place} +16 +{100 * row['test_accuracy']:.2f} %", out, re.MULTILINE)


@BOTH
def test_selected_classes_and_images_are_those_that_a_training_would_use(as_json, run, command):
    found = as_json(command, run, "--classes", "7", "1", "4", "--images", "60", "--seed", "5")
    split = data.choose(data.digits(), ("7", "1", "4"), 60, seed=5)
    options = {"seed": 5} if command == "probe-linear" else {}
    assert (found["classes"], found["train_images"]) == (["7", "1", "4"], 60)
    assert found["test_accuracy"] == COMMANDS[command](*examples(run, split), **options).accuracy
    assert found["test_images"] == len(split.test)


def test_votes_and_strength_follow_the_options(as_json, succeeds, run):
    train, test = examples(run, data.digits())
    found = as_json("knn", run, "--k", "3", "--temperature", "0.5")
    assert (found["k"], found["temperature"]) == (3, 0.5)
    assert found["test_accuracy"] == nearest_neighbours(train, test, k=3, temperature=0.5).accuracy
    found = as_json("probe-linear", run, "--C", "0.5")
    assert (found["C"], found["tried"]) == (0.5, [])
    assert found["test_accuracy"] == linear_probe(train, test, C=0.5).accuracy
    assert "held out" not in succeeds("probe-linear", run, "--C", "0.5")
    assert len(as_json("probe-linear", run, "--images", "100")["tried"]) == len(STRENGTHS)


@pytest.mark.parametrize(("arguments", "message"), [
    *((f"{command} {options}", message) for command in COMMANDS for options, message in (
        ("--layer 2", "no layer 2; the model has 0 to 1, or from the end −1 to −2"),
        ("--layer last", "'last'"),
        ("--classes --json", "expected names after --classes, got none"),
        ("--classes 0 ten", "no class 'ten'; expected one of 0, 1, 2"),
        ("--seed -1", "seed must be at least 0, got -1"),
    )),
    ("knn --k 0", r"a k \(--k; by default 20\) from 1 to 1437 training images, got 0"),
    ("knn --images 10", r"\(--k; by default 20\) from 1 to 10 training images, got 20"),
    ("knn --C 1", "--C"),
])  # fmt: skip
def test_an_invalid_probing_is_refused(refused, run, arguments, message):
    command, *options = arguments.split()
    assert re.search(message, refused(command, run, *options))
