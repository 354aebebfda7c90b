import json
import re
import shutil

import numpy as np
import pytest
from PIL import Image

from tinyvit import data
from tinyvit.training import features
from tinyvit.training.trained import load_trained

NAMES = [f"{i}.png" for i in range(5)]


@pytest.fixture(scope="session")
def photos(tmp_path_factory):
    """Test digits as image files."""
    folder = tmp_path_factory.mktemp("digits")
    for name, image in zip(NAMES, data.digits().test.images):
        Image.fromarray(np.rint(image[0] * (255 / 16)).astype("uint8")).save(folder / name)
    return folder


def test_a_row_for_each_image_is_written_and_its_path_beside_it(tinyvit, run, photos, tmp_path):
    status, out, err = tinyvit("features", run, photos / "3.png", photos, "--out", "f.npy")
    assert (status, err) == (0, "")
    rows = np.load(tmp_path / "f.npy")
    assert (rows.dtype, rows.shape) == ("float32", (6, 16)) and "16: mean over the patches as the head reads it" in out
    assert (tmp_path / "f.txt").read_text().splitlines() == [str(photos / name) for name in ["3.png", *NAMES]]
    assert sorted(file.name for file in tmp_path.iterdir()) == ["f.npy", "f.txt"]
    # They are those of the test images, up to the rounding to eight bits.
    trained = load_trained(run, "cpu")
    images = trained.preprocessing.read([photos / name for name in NAMES])
    np.testing.assert_allclose(
        rows, features(trained.model, trained.preprocessing(np.stack([images[3], *images]))), rtol=1e-5, atol=1e-6
    )


def test_json_says_what_was_written_where(tinyvit, run, photos):
    status, out, err = tinyvit(
        "features", "--json", run, "--layer", "-1", photos, "--pool", "mean", "--out=f.npy", "--names", "list"
    )  # fmt: skip
    assert (status, err) == (0, "")
    assert json.loads(out) == {
        "images": 5, "unreadable": 0, "features": 16, "layer": 1, "pool": "mean", "out": "f.npy", "names": "list",
    }  # fmt: skip


@pytest.mark.parametrize("layer", [0, 1, -1, -2, None])
@pytest.mark.parametrize("pool", ["token", "mean", None])
def test_layers_and_pools_are_those_of_the_library(tinyvit, run, photos, tmp_path, layer, pool):
    options = [*(() if layer is None else ("--layer", layer)), *(() if pool is None else ("--pool", pool))]
    assert tinyvit("features", run, photos, "--out", "f.npy", *options)[0] == 0
    trained = load_trained(run, "cpu")
    images = trained.preprocessing(np.stack(trained.preprocessing.read([photos / name for name in NAMES])))
    expected = features(trained.model, images, layer=layer, pool=pool)
    np.testing.assert_allclose(np.load(tmp_path / "f.npy"), expected, rtol=1e-5, atol=1e-6)


def test_an_unreadable_file_has_no_row_and_is_named_and_the_status_is_2(tinyvit, run, photos, tmp_path):
    (tmp_path / "bad.png").write_bytes(b"no image")
    (tmp_path / "empty").mkdir()
    shutil.copy(photos / "2.png", tmp_path / "line\nbreak.png")
    asked = ["bad.png", photos / "1.png", "missing.png", "line\nbreak.png", "empty", photos / "0.png"]
    status, out, err = tinyvit("features", run, *asked, "--out", "f.npy", "--json")
    assert status == 2
    assert (json.loads(out)["images"], json.loads(out)["unreadable"]) == (2, 4)
    assert (tmp_path / "f.txt").read_text().splitlines() == [str(photos / "1.png"), str(photos / "0.png")]
    errors = err.splitlines()
    assert len(errors) == 4 and all(line.startswith("tinyvit: error: ") for line in errors)
    for line, message in zip(errors, ["bad.png can't be read", "missing.png doesn't exist", "line break", "no images"]):
        assert message in line
    assert tinyvit("features", run, photos / "1.png", photos / "0.png", "--out", "right.npy")[0] == 0
    np.testing.assert_allclose(np.load(tmp_path / "f.npy"), np.load(tmp_path / "right.npy"), rtol=1e-5, atol=1e-6)


def test_if_no_file_can_be_read_nothing_is_written(tinyvit, run, tmp_path):
    for options in ([], ["--json"]):
        status, out, err = tinyvit("features", run, "missing.png", "--out", "f.npy", *options)
        assert status == 2 and err == "tinyvit: error: missing.png doesn't exist; expected an image\n"
    assert json.loads(out)["out"] is None
    assert not any(tmp_path.iterdir())


def test_an_invalid_command_line_is_refused_and_nothing_is_written(refused, run, photos, tmp_path):
    image, out = photos / "0.png", ["--out", "f.npy"]
    for arguments, message in (
        ([run, *out], "expected a run folder and images.* and no image"),
        ([run, image], "--out"),
        ([run, "", *out], "expected a run folder and images"),
        ([run, image, *out, "--layer", "2"], "no layer 2; the model has 0 to 1, or from the end −1 to −2"),
        ([run, image, *out, "--layer", "-3"], "no layer -3; the model has 0 to 1"),
        ([run, image, *out, "--layer", "last"], "expected --layer as one number, got 'last'"),
        ([run, image, *out, "--layer", "all"], "expected --layer as one number, got 'all'"),
        ([run, image, *out, "--pool", "max"], "'max'.*--pool"),
        ([run, image, *out, "--pools", "mean"], "--pools.*did you mean --pool"),
        ([run, image, "--out", "f.npz"], r"a \.npy file, got --out f\.npz"),
        ([run, image, "--out", "nowhere/f.npy"], r"f\.npy is in nowhere, which doesn't exist"),
        ([run, image, *out, "--names", "nowhere/n"], "n is in nowhere, which doesn't exist"),
        ([run, image, *out, "--names", "f.npy"], r"both be written to f\.npy"),
    ):
        assert re.search(message, refused("features", *arguments)), message
        assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["f.npy", "f.txt"])
def test_existing_files_are_not_overwritten(refused, run, photos, tmp_path, name):
    (tmp_path / name).write_bytes(b"precious")
    assert f"{name} exists already" in refused("features", run, photos, "--out", "f.npy")
    assert [(file.name, file.read_bytes()) for file in tmp_path.iterdir()] == [(name, b"precious")]
