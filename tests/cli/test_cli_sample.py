"""tinyvit sample, and the other commands on a run of the task diffusion."""

import numpy as np
import pytest
from PIL import Image

SMALL = ["--batch-size", "512", "--model.embed-dim", "16", "--model.depth", "1", "--model.num-heads", "2",
         "--model.patch-size", "4", "--device", "cpu"]  # fmt: skip


@pytest.fixture
def run(trained):
    return trained("dit-digits", *SMALL)


def test_numbers_are_float32_from_0_to_1_and_the_same_for_the_same_seed(succeeds, run, tmp_path):
    asked = ("--class", "7", "--count", "5", "--guidance", "2", "--seed", "0", "--steps", "4")
    for name, options in (
        ("a", ()), ("b", ("--threads", "1")), ("c", ("--seed", "1")), ("few", ("--count", "2")),
        ("ddpm", ("--sampler", "ddpm")), ("none", ("--guidance", "0")), ("best", ("--best",)),
    ):  # fmt: skip
        assert name in succeeds("sample", run, *asked, *options, "--out", f"{name}.npy")
    a, b, c, few, ddpm, none = (np.load(tmp_path / f"{name}.npy") for name in ("a", "b", "c", "few", "ddpm", "none"))
    assert a.shape == (5, 1, 8, 8) and a.dtype == "float32" and a.min() >= 0 and a.max() <= 1
    np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(few, a[:2])
    assert all((a != other).any() for other in (c, ddpm, none))


@pytest.mark.parametrize("asked, classes, count", [
    (("--class", "3", "7"), ["3", "7"], 4), (("--class", "3", "--class=7"), ["3", "7"], 4),
    ((), list("0123456789"), 20),
])  # fmt: skip
def test_several_classes_are_made_one_after_the_other(as_json, run, asked, classes, count):
    found = as_json("sample", run, *asked, "--count", "2", "--steps", "2", "--out", "x.npy")
    assert found["classes"] == classes and found["shape"] == [count, 1, 8, 8]


def test_pictures_are_grids_strips_and_films(succeeds, run, tmp_path):
    asked = ("--class", "1", "2", "--count", "3", "--steps", "5")
    for name, options in (("grid.png", ()), ("strip.png", ("--strip",)), ("film.gif", ())):
        succeeds("sample", run, *asked, *options, "--out", name)
    with Image.open(tmp_path / "grid.png") as picture:
        assert picture.size == (3 * 50 + 2, 2 * 50 + 2)  # a row for each class
        assert np.ptp(np.asarray(picture)) > 50
    with Image.open(tmp_path / "strip.png") as picture:
        assert picture.size == (6 * 50 + 2, 6 * 50 + 2)  # a row for each image, from noise on
    with Image.open(tmp_path / "film.gif") as film:
        assert 2 < film.n_frames <= 6 and film.info["loop"] == 0


@pytest.mark.parametrize("options, said", [
    ("--class 12", "unknown class '12'; did you mean 2?"),
    ("--class", "expected names or numbers after --class, got none"),
    ("--class -1", "-1"),
    ("--count 0", "count must be at least 1, got 0"),
    ("--seed -1", "seed must be at least 0, got -1"),
    ("--sampler euler", "sampler"),
    ("--out x.jpg2", "out must end in .npy, .png, .gif, got --out 'x.jpg2'"),
    ("--out x.npy --strip", "--strip is a picture"),
    ("--out nowhere/x.png", "--out 'nowhere/x.png' is in nowhere, which doesn't exist"),
    ("--out folder.png", "folder.png' is a folder; give a file"),
])  # fmt: skip
def test_bad_input_is_one_line(refused, run, tmp_path, options, said):
    (tmp_path / "folder.png").mkdir()
    assert said in refused("sample", run, "--count", "1", "--class", "1", "--steps", "2", *options.split())


def test_a_run_of_few_steps_without_label_dropout_has_no_guidance_and_no_more_steps(as_json, refused, trained):
    run = trained("dit-digits", *SMALL, "--model.label-dropout", "0", "--objective.timesteps", "3")
    asked = ("sample", run, "--class", "1", "--count", "1", "--out", "x.npy")
    assert "guidance 2 needs a model that was trained with label dropout" in refused(*asked, "--guidance", "2")
    assert as_json(*asked)["steps"] == 3


def test_another_run_makes_no_images(refused, trained):
    run = trained("digits", "--model.depth", "1", "--model.embed-dim", "16")
    assert "the task 'classification' makes no images; sample needs a run of the task" in refused("sample", run)
    assert "missing RUN: The folder of a run" in refused("sample")
    assert "nowhere" in refused("sample", "nowhere")


def test_the_other_commands_work_on_such_a_run_or_say_why_not(as_json, succeeds, refused, run, photos):
    assert 0 < as_json("evaluate", run)["test_loss"] < 2
    out = succeeds("summary", run)
    assert "final_layer.linear" in out and "adaLN_modulation" in out
    assert as_json("features", run, photos, "--out", "f.npy")["features"] == 16
    assert "isn't classification; tinyvit sample, evaluate" in refused("predict", run, photos)
    succeeds("inspect", run, "--images", "2", "--out", "pictures")
