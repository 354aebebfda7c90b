"""What every command about a run refuses, and that none of them changes the run."""

import shutil

import numpy as np
import pytest
from PIL import Image

from tinyvit.training.run_folder import RunFolder

COMPUTING = [
    "evaluate RUN", "predict RUN IMAGE", "features RUN IMAGE --out f.npy", "inspect RUN --images 2 --out pictures",
    "inspect RUN --images 2 --html a.html", "probe-linear RUN --images 100", "knn RUN --images 100",
]  # fmt: skip
EXPORT = "export RUN --format timm --out exported"


@pytest.fixture(params=[*COMPUTING, EXPORT])
def command(request, tmp_path):
    """The words of a command for a given run; in the current folder there is an image for it."""
    Image.new("L", (8, 8)).save(tmp_path / "image.png")
    return lambda run: [{"RUN": run, "IMAGE": "image.png"}.get(word, word) for word in request.param.split()]


def test_the_run_is_left_unchanged(tinyvit, run, command):
    before = {file: file.read_bytes() for file in run.rglob("*") if file.is_file()}
    assert tinyvit(*command(run))[0] == 0
    assert {file: file.read_bytes() for file in run.rglob("*") if file.is_file()} == before


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "preprocessing.json"])
def test_a_run_with_a_missing_file_is_refused_by_its_name_and_nothing_is_written(
    refused, damaged, tmp_path, command, name
):
    assert name in refused(*command(damaged(name, None)))
    assert {path.name for path in tmp_path.iterdir()} == {"damaged", "image.png"}


def test_without_a_run_folder_the_command_is_refused(refused, tmp_path, command):
    assert "nowhere is not a run folder: it doesn't exist" in refused(*command("nowhere"))
    assert f"{tmp_path} is not a run folder: it has no config.json" in refused(*command(tmp_path))
    assert "missing RUN: The folder of a run" in refused(command("")[0])


@pytest.mark.parametrize("command", COMPUTING, indirect=True)
def test_options_that_no_computation_can_have_are_refused(refused, run, tmp_path, command):
    for options, said in (
        ("--threads 0", "expected a number of threads from 1 to 4,096, got 0"),
        ("--device tpu", "unknown device 'tpu'; expected one of auto, cpu, cuda"),
        ("--kernels quick", "invalid choice 'quick' for argument '--kernels'"),
    ):
        assert said in refused(*command(run), *options.split())
    assert [path.name for path in tmp_path.iterdir()] == ["image.png"]


@pytest.mark.parametrize("command", COMPUTING, indirect=True)
def test_weights_that_are_nan_or_infinite_are_refused(refused, run, tmp_path, command):
    folder = RunFolder(shutil.copytree(run, tmp_path / "damaged"))
    folder.save_model(folder.load_model() | {"norm.bias": np.full(16, np.nan, "float32")})
    assert "NaN or infinite" in refused(*command(folder.path))
