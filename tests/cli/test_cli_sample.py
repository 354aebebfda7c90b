"""tinyvit sample, and the other commands on a run of the task diffusion."""

import json

import numpy as np
import pytest
from PIL import Image

from tinyvit import cli

SMALL = ["--epochs", "1", "--batch-size", "512", "--model.embed-dim", "16", "--model.depth", "1", "--model.num-heads",
         "2", "--model.patch-size", "4", "--device", "cpu"]  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    path = tmp_path_factory.mktemp("sample") / "run"
    with pytest.raises(SystemExit, match="^0$"):
        cli.main(["train", "dit-digits", "--out", str(path), *SMALL])
    return path


def test_numbers_are_float32_from_0_to_1_and_the_same_for_the_same_seed(tinyvit, run, tmp_path):
    asked = ("--class", "7", "--count", "5", "--guidance", "2", "--seed", "0", "--steps", "4")
    for name, options in (("a.npy", ()), ("b.npy", ("--threads", "1")), ("c.npy", ("--seed", "1"))):
        status, out, err = tinyvit("sample", run, *asked, *options, "--out", name)
        assert (status, err) == (0, "") and name in out
    a, b, c = (np.load(tmp_path / f"{name}.npy") for name in "abc")
    assert a.shape == (5, 1, 8, 8) and a.dtype == "float32" and a.min() >= 0 and a.max() <= 1
    np.testing.assert_array_equal(a, b)
    assert (a != c).any()
    tinyvit("sample", run, *asked, "--count", "2", "--out", "few.npy")
    np.testing.assert_array_equal(np.load(tmp_path / "few.npy"), a[:2])


@pytest.mark.parametrize("asked, classes, count", [
    (("--class", "3", "7"), ["3", "7"], 4), (("--class", "3", "--class=7"), ["3", "7"], 4),
    ((), list("0123456789"), 20),
])  # fmt: skip
def test_several_classes_are_made_one_after_the_other(tinyvit, run, asked, classes, count):
    status, out, _ = tinyvit("sample", run, *asked, "--count", "2", "--steps", "2", "--out", "x.npy", "--json")
    found = json.loads(out)
    assert status == 0 and found["classes"] == classes and found["shape"] == [count, 1, 8, 8]


def test_pictures_are_grids_strips_and_films(tinyvit, run, tmp_path):
    asked = ("--class", "1", "2", "--count", "3", "--steps", "5")
    for name, options in (("grid.png", ()), ("strip.png", ("--strip",)), ("film.gif", ())):
        assert tinyvit("sample", run, *asked, *options, "--out", name)[0] == 0
    with Image.open(tmp_path / "grid.png") as picture:
        assert picture.size == (3 * 50 + 2, 2 * 50 + 2)  # a row for each class
        assert np.ptp(np.asarray(picture)) > 50
    with Image.open(tmp_path / "strip.png") as picture:
        assert picture.size == (6 * 50 + 2, 6 * 50 + 2)  # a row for each image, from noise on
    with Image.open(tmp_path / "film.gif") as film:
        assert 2 < film.n_frames <= 6 and film.info["loop"] == 0


def test_ddpm_and_the_class_none_can_be_asked_for(tinyvit, run):
    asked = ("sample", run, "--class", "1", "--count", "1", "--steps", "3", "--out", "x.npy")
    for options in (("--sampler", "ddpm"), ("--guidance", "0"), ("--best",)):
        assert tinyvit(*asked, *options)[0] == 0


@pytest.mark.parametrize("options, said", [
    (("--class", "12"), "there is no class '12'; the model has: 0, 1, 2"),
    (("--class", "seven"), "there is no class 'seven'"),
    (("--class",), "expected names or numbers after --class, got none"),
    (("--class", "-1"), "-1"),
    (("--count", "0"), "count must be at least 1, got 0"),
    (("--seed", "-1"), "seed must be at least 0, got -1"),
    (("--steps", "1001"), "expected 1 to 1,000 steps, at most as many as in the training, got 1,001"),
    (("--steps", "0"), "got 0"),
    (("--guidance", "-2"), "expected a guidance of at least 0, got -2"),
    (("--sampler", "euler"), "sampler"),
    (("--out", "x.jpg2"), "out must end in .npy, .png, .gif, got --out 'x.jpg2'"),
    (("--out", "x"), "got --out 'x'"),
    (("--out", "x.npy", "--strip"), "--strip is a picture"),
    (("--out", "nowhere/x.png"), "there is no folder nowhere for --out 'nowhere/x.png'"),
])  # fmt: skip
def test_bad_input_is_one_line(refused, run, options, said):
    assert said in refused("sample", run, "--count", "1", "--class", "1", "--steps", "2", *options)


def test_a_folder_to_write_to_is_refused_before_anything_is_drawn(refused, run, tmp_path):
    (tmp_path / "folder.png").mkdir()
    said = refused("sample", run, "--count", "1", "--steps", "2", "--out", tmp_path / "folder.png")
    assert "folder.png' is a folder; give a file" in said


def test_without_label_dropout_there_is_no_guidance(tinyvit, refused, tmp_path):
    assert tinyvit("train", "dit-digits", "--out", "plain", *SMALL, "--model.label-dropout", "0")[0] == 0
    asked = ("sample", "plain", "--class", "1", "--count", "1", "--steps", "2", "--out", "x.npy")
    assert "guidance 2 needs a model that was trained with label dropout" in refused(*asked, "--guidance", "2")
    assert tinyvit(*asked)[0] == 0


def test_by_default_there_are_no_more_steps_than_in_the_training(tinyvit):
    assert tinyvit("train", "dit-digits", "--out", "short", *SMALL, "--objective.timesteps", "3")[0] == 0
    status, out, _ = tinyvit("sample", "short", "--class", "1", "--count", "1", "--out", "x.npy", "--json")
    assert status == 0 and json.loads(out)["steps"] == 3


def test_another_run_makes_no_images(tinyvit, refused):
    assert tinyvit("train", "digits", "--out", "digits", "--epochs", "1", "--batch-size", "512", "--model.depth", "1",
                   "--model.embed-dim", "16")[0] == 0  # fmt: skip
    assert "the task 'classification' makes no images; sample needs a run of the task" in refused("sample", "digits")
    assert "missing RUN: The folder of a run" in refused("sample")
    assert "nowhere" in refused("sample", "nowhere")


def test_the_other_commands_work_on_such_a_run_or_say_why_not(tinyvit, refused, run, tmp_path):
    status, out, _ = tinyvit("evaluate", run, "--json")
    assert status == 0 and 0 < json.loads(out)["test_loss"] < 2
    status, out, _ = tinyvit("summary", run)
    assert status == 0 and "final_layer.linear" in out and "adaLN_modulation" in out
    Image.fromarray(np.arange(64, dtype="uint8").reshape(8, 8)).save(tmp_path / "a.png")
    assert tinyvit("features", run, "a.png", "--out", "f.npy")[0] == 0
    assert np.load(tmp_path / "f.npy").shape == (1, 16)
    assert "isn't classification; tinyvit sample, evaluate" in refused("predict", run, "a.png")
    assert tinyvit("inspect", run, "--images", "2", "--out", "pictures")[0] == 0
