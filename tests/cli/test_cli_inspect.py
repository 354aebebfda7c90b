"""`tinyvit inspect`; its pictures and its page are tested in tests/probe, other architectures in test_cli_family.py."""

import json
import re

import numpy as np
import pytest
from PIL import Image

from tinyvit import data, probe
from tinyvit import functional as F
from tinyvit.cli import command_of, inspect
from tinyvit.probe.explorer import choose_images
from tinyvit.training.tasks.classification import logits_of
from tinyvit.training.trained import load_trained

OF_FILES = {f"{name}.png" for name in ("attention", "rollout", "class", "positions", "filters")}
OF_TEST_IMAGES = {f"{name}.png" for name in ("distance", "spectrum", "norms", "receptive", "most-wrong")}
MEANS = ("--images", "3")


@pytest.fixture
def numbers(as_json):
    """The object that `inspect … --json` prints."""
    return lambda run, *arguments: as_json("inspect", run, "--out", "pictures", *MEANS, *arguments)


def is_picture(path):
    with Image.open(path) as picture:
        picture.load()
        return picture.format == "PNG" and np.ptp(np.asarray(picture.convert("L"))) > 50


def test_all_pictures_are_written_into_the_run_replace_older_ones_and_are_named_in_the_table(
    succeeds, own_run, contents
):
    before = contents(own_run)
    folder = own_run / "inspect"
    folder.mkdir()
    (folder / "rollout.png").write_text("old")
    (folder / "mine.txt").write_text("mine")
    out = succeeds("inspect", own_run, *MEANS)
    names = OF_FILES | OF_TEST_IMAGES
    assert {path.name for path in folder.iterdir()} == {"mine.txt", *names}
    assert all(is_picture(folder / name) and f"  {name} " in out for name in names)
    assert {path: content for path, content in contents(own_run).items() if "inspect" not in str(path)} == before
    assert f"written to {folder}" in out and "test image 0" in out and "mean of 3 images" in out


def test_pictures_of_a_model_that_comes_with_tinyvit_are_written_beside_it(succeeds, run, tmp_path, monkeypatch):
    monkeypatch.setattr("tinyvit.training.run_folder.stored_models", lambda: {"tiny": run})
    succeeds("inspect", "tiny", *MEANS)
    assert {path.name for path in (tmp_path / "inspect-tiny").iterdir()} == OF_FILES | OF_TEST_IMAGES


def test_the_numbers_are_those_of_the_probe(numbers, run):
    found = numbers(run, "--image", "5")
    model, test = load_trained(run, "cpu").model, data.digits().test
    trace = probe.trace(model, test.normalise(test.images[5:6]))
    predicted = int(trace.logits[0].argmax())
    assert found["label"] == str(test.labels[5]) and found["predicted"] == found["class"] == str(predicted)
    assert found["probability"] == pytest.approx(trace.probabilities[0, predicted], rel=1e-5)
    rollout = probe.over_patches(probe.attention_rollout(trace.attention), trace.grid, "avg")[0]
    np.testing.assert_allclose(found["rollout"], rollout, rtol=1e-5)
    trace = probe.trace(model, test.normalise(test.images[[0, 179, 359]]))
    distance = probe.mean_attention_distance(trace.attention, trace.grid, 2).mean(1)
    np.testing.assert_allclose(found["attention_distance"], distance, rtol=1e-5)
    wrong = probe.most_wrong(logits_of(model, test), test.labels)
    assert [entry["image"] for entry in found["most_wrong"]] == wrong.rows.tolist()
    assert found["wrong"] == (logits_of(model, test).argmax(1) != test.labels).sum()
    assert found["images"] == 3 and found["left_out"] == {}


def test_a_head_and_a_class_are_drawn_as_asked(numbers, run):
    seven = numbers(run, "--class", "7", "--head", "3")
    two = numbers(run, "--class", "2", "--block", "0", "--head", "3")
    assert "attention-head-3.png" in seven["pictures"]
    assert {"attention-block-0-head-3.png", "patches-block-0-head-3.png"} < set(two["pictures"])
    assert (seven["class"], two["class"]) == ("7", "2")
    assert seven["class_attention"] != two["class_attention"] and seven["rollout"] == two["rollout"]


def test_an_image_file_is_prepared_as_predict_does_and_needs_no_data_set(numbers, succeeds, as_json, own_run, photos):
    config = json.loads((own_run / "config.json").read_text())
    (own_run / "config.json").write_text(json.dumps({**config, "dataset": "folder", "data_dir": "gone"}))
    found = numbers(own_run, "--image", photos / "3.png")
    top = as_json("predict", own_run, photos / "3.png")["top"][0]
    assert found["predicted"] == top["class"] and found["probability"] == pytest.approx(top["probability"], rel=1e-5)
    assert found["image"] == "3.png" and found["label"] is None and set(found["pictures"]) == OF_FILES
    assert {f"{name}.png" for name in found["left_out"]} == OF_TEST_IMAGES and "gone" in found["left_out"]["norms"]
    assert ", most-wrong: " in succeeds("inspect", own_run, "--image", photos / "3.png")


@pytest.mark.parametrize(("positions", "pool"), [("sincos_2d", "avg"), ("rope", "token"), ("none", "avg")])
def test_other_kinds_of_positions_and_pooling_can_be_inspected(numbers, trained, positions, pool):
    run = trained("digits", "--model.depth", "1", "--model.embed-dim", "16", "--model.patch-size", "2",
                  "--model.positions", positions, "--model.global-pool", pool)  # fmt: skip
    found = numbers(run)
    assert list(found["left_out"]) == ([] if "2d" in positions else ["positions"])
    assert ("positions.png" in found["pictures"]) == ("2d" in positions)
    assert np.shape(found["rollout"]) == np.shape(found["class_attention"]) == (4, 4)


def test_a_model_of_a_single_patch_has_no_spectrum_and_says_so(numbers, trained):
    found = numbers(trained("digits", "--model.depth", "1", "--model.patch-size", "8"))
    assert found["left_out"] == {"spectrum": "patches in a single row or column have no diagonal"}
    assert found["attention_distance"] == [[0.0] * 4]


# -- the page ---------------------------------------------------------------------------------------------------------


def names_in(path):
    """The names of the images in a page."""
    text = re.search(r'<script type="application/json" id="numbers">(.*?)</script>', path.read_text("utf-8"), re.S)[1]
    return [image["name"] for image in json.loads(text)["images"]]


@pytest.fixture
def chosen(run):
    """The `count` test images that the page shows by default."""
    model, test = load_trained(run, "cpu").model, data.digits().test
    probabilities = F.softmax(logits_of(model, test))[0]
    return lambda count: choose_images(probabilities, test.labels, count)


def test_a_page_of_chosen_images_is_written_and_nothing_else(succeeds, as_json, run, chosen, tmp_path):
    page = tmp_path / "page.htm"
    page.write_text("old")
    out = succeeds("inspect", run, "--html", "page.htm")
    assert list(tmp_path.iterdir()) == [page] and names_in(page) == [f"test image {row}" for row in chosen(12)]
    shown = ", ".join(map(str, chosen(12)))
    assert out == f"written to page.htm: {page.stat().st_size / 1e6:.1f} MB, test images {shown}\n"
    third = chosen(5)[2]
    for first in (359, third):  # which comes first, and once
        expected = [first, *(row for row in chosen(5) if row != first)][:5]
        assert as_json("inspect", run, "--html", "page.htm", "--image", first, "--images", "5") == {
            "run": str(run), "html": "page.htm", "bytes": page.stat().st_size, "images": expected, "left_out": [],
        }  # fmt: skip
        assert names_in(page) == [f"test image {row}" for row in expected]


def test_a_page_without_a_name_goes_into_the_run(succeeds, own_run):
    for arguments in (["--html", own_run], [own_run, "--html"], [own_run, "--html", "--images", "3"]):
        assert command_of(["inspect", *map(str, arguments)]).html == ""
    succeeds("inspect", "--html", own_run, "--images", "1")
    assert len(names_in(own_run / "inspect.html")) == 1


def test_images_that_do_not_fit_into_the_page_are_named_and_one_must(
    succeeds, as_json, refused, run, chosen, monkeypatch
):
    room, explorer = as_json("inspect", run, "--html", "a.html", "--images", "3")["bytes"], inspect.explorer
    monkeypatch.setattr(inspect, "explorer", lambda *args, **named: explorer(*args, **named, largest=room))
    found = as_json("inspect", run, "--html", "a.html")
    assert (found["bytes"], found["images"], found["left_out"]) == (room, chosen(12)[:3], chosen(12)[3:])
    missing = ", ".join(map(str, chosen(12)[3:]))
    assert f"these test images don't fit in the page: {missing}\n" in succeeds("inspect", run, "--html", "a.html")
    monkeypatch.setattr(inspect, "explorer", lambda *args, **named: explorer(*args, **named, largest=1000))
    assert "a page with one image of this model would have" in refused("inspect", run, "--html", "a.html")


# -- bad input --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("arguments", "said"), [
    ("--layer 1", "there is no block 1; the model has 1, counted from 0"),
    ("--head 4", "there is no head 4; the model has 4, counted from 0"),
    ("--class cat", "unknown class 'cat'; expected one of 0, 1, 2, 3, 4, 5, 6, 7, 8, 9"),
    ("--class -1", "unknown class '-1'; did you mean 1?"),
    ("--image 360", "there is no test image 360; there are images 0 to 359"),
    ("--image -1", "there is no test image -1; there are images 0 to 359"),
    ("--image nowhere.png", "nowhere.png"),
    ("--images 0", "images must be at least 1, got 0"),
    ("--reconstructions 3", "--reconstructions needs a run of the task mae"),
    ("--html page.txt", "html must end in .html, .htm, got --html 'page.txt'"),
    ("--html folder.html", "--html 'folder.html' is a folder; give a file"),
    ("--html nowhere/a.html", "--html 'nowhere/a.html' is in nowhere, which doesn't exist"),
    ("--html a.html --image 360", "there is no test image 360; there are images 0 to 359"),
    ("--html a.html --image mine.png", "expected a number, got --image 'mine.png'"),
    ("--html a.html --images 0", "images must be at least 1, got 0"),
    ("--html a.html --block 0", "--block is about pictures"),
    ("--html a.html --data-dir gone", "leave out --data-dir"),
])  # fmt: skip
def test_bad_options_are_refused_with_what_there_is(refused, own_run, tmp_path, arguments, said):
    (tmp_path / "folder.html").mkdir()
    assert said in refused("inspect", own_run, *arguments.split())
