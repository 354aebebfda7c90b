"""Bad input that every command about a run refuses; none of them changes the run."""

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


def test_a_run_that_is_given_by_its_name_is_left_unchanged(succeeds, run, command, contents, monkeypatch):
    monkeypatch.setattr("tinyvit.training.run_folder.stored_models", lambda: {"tiny": run})
    before = contents(run)
    succeeds(*command("tiny"))
    assert contents(run) == before


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "preprocessing.json"])
def test_a_run_with_a_missing_file_is_refused_by_its_name(refused, own_run, command, name):
    (own_run / name).unlink()
    assert name in refused(*command(own_run))


@pytest.mark.parametrize(("name", "content", "said"), [
    ("config.json", b"", "config.json is not a tinyvit configuration"),
    ("config.json", b"\xff\x00", "config.json is not a tinyvit configuration"),
    ("config.json", b'{"architectures": ["ViTForImageClassification"]}', "config.json"),
    ("preprocessing.json", b'{"classes": 3}', "preprocessing.json doesn't say how images are prepared"),
    ("model.safetensors", b"", "model.safetensors"),
    ("model.safetensors", b"PK\x03\x04 something else", "model.safetensors"),
    ("model.safetensors", None, "model.safetensors is damaged"),
])  # fmt: skip
def test_a_run_with_a_damaged_file_is_refused_by_its_name(refused, own_run, name, content, said):
    whole = (own_run / name).read_bytes()
    (own_run / name).write_bytes(whole[: len(whole) // 2] if content is None else content)
    assert said in refused("evaluate", own_run)


def test_without_a_run_folder_the_command_is_refused(refused, tmp_path, command):
    assert "nowhere is not a run folder: it doesn't exist" in refused(*command("nowhere"))
    assert f"{tmp_path} is not a run folder: it has no config.json" in refused(*command(tmp_path))
    assert "missing RUN: The folder of a run" in refused(command("")[0])


@pytest.mark.parametrize("command", COMPUTING, indirect=True)
def test_options_that_no_computation_can_have_are_refused(refused, run, command):
    for options, said in (
        ("--threads 0", "expected a number of threads from 1 to 4,096, got 0"),
        ("--device tpu", "unknown device 'tpu'; expected one of auto, cpu, cuda"),
        ("--kernels quick", "'quick' for argument '--kernels'. Expected one of ('fast', 'numpy', 'reference')"),
        ("--treads 1", "did you mean --threads"),
    ):
        assert said in refused(*command(run), *options.split())


@pytest.mark.parametrize("command", COMPUTING, indirect=True)
def test_weights_that_are_nan_or_infinite_are_refused(refused, own_run, command):
    folder = RunFolder(own_run)
    folder.save_model(folder.load_model() | {"norm.bias": np.full(16, np.nan, "float32")})
    assert "NaN or infinite" in refused(*command(folder.path))
