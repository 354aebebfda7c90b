"""`--device` and `--precision` without a GPU, and with one that doesn't support the request."""

import json
import sys

import numpy as np
import pretend_cupy
import pytest
from PIL import Image

COMMANDS = ("train digits", "train --resume {run}", "evaluate {run}", "predict {run} {image}")
NO_GPU = "on the CPU, no GPU: CuPy isn't installed (pip install 'tinyvit[cuda12]', or cuda13)"


@pytest.fixture
def without_cupy(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)  # importing it raises, as if it weren't installed


@pytest.fixture
def image(tmp_path):
    path = tmp_path / "image.png"
    Image.fromarray(np.arange(64, dtype="uint8").reshape(8, 8)).save(path)
    return path


@pytest.fixture
def unfinished(damaged):
    return damaged("summary.json", None)


def arguments(command, run, image):
    return command.format(run=run, image=image).split()


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(("device", "message"), [
    ("cuda", "device 'cuda' can't be used: CuPy isn't installed (pip install 'tinyvit[cuda12]', or cuda13); use"),
    ("cuda:1", "device 'cuda:1' can't be used: CuPy isn't installed"),
    ("gpu", "unknown device 'gpu'; expected one of auto, cpu, cuda, or cuda:0, cuda:1, …"),
])  # fmt: skip
def test_a_requested_gpu_that_is_missing_is_refused_in_one_line(
    refused, without_cupy, unfinished, image, command, device, message
):
    assert message in refused(*arguments(command, unfinished, image), "--device", device)


@pytest.mark.parametrize("command", COMMANDS)
def test_auto_says_once_why_it_uses_the_cpu(says_all, without_cupy, unfinished, image, command):
    short = ["--epochs", "1", "--batch-size", "512", "--model.depth", "1"] if command == "train digits" else []
    status, out, err = says_all(*arguments(command, unfinished, image), "--device", "auto", *short)
    assert status == 0
    assert (out + err).count(NO_GPU.partition("no GPU: ")[2]) == 1
    assert err == ("" if command.startswith("train") else f"tinyvit: {NO_GPU}\n")


def test_nothing_is_said_where_the_cpu_was_requested(says_all, without_cupy, run, image):
    status, out, err = says_all("evaluate", run, "--device", "cpu", "--json")
    assert (status, err, json.loads(out)["device"]) == (0, "", "cpu")
    assert says_all("predict", run, image, "--device", "cpu")[2] == ""


def test_auto_with_a_gpu_precision_says_why_there_is_no_gpu(refused, without_cupy, tmp_path):
    message = refused("train", "digits", "--precision", "bfloat16", "--out", "run")
    assert "precision 'bfloat16' needs a GPU, and none can be used: CuPy isn't installed" in message
    assert message.endswith("; on the CPU take float32\n") and not (tmp_path / "run").exists()


def test_a_gpu_run_can_be_resumed_on_the_cpu_in_float32_only(refused, tinyvit, without_cupy, unfinished):
    config = json.loads((unfinished / "config.json").read_text()) | {"precision": "bfloat16", "device": "cuda"}
    (unfinished / "config.json").write_text(json.dumps(config))
    assert "device 'cuda' can't be used" in refused("train", "--resume", unfinished)
    assert "precision 'bfloat16' needs a GPU" in refused("train", "--resume", unfinished, "--device", "cpu")
    assert tinyvit("evaluate", unfinished, "--device", "cpu")[0] == 0
    assert tinyvit("train", "--resume", unfinished, "--device", "cpu", "--precision", "float32")[0] == 0


def test_a_gpu_number_beyond_the_last_one_is_refused(refused, monkeypatch, run):
    monkeypatch.setitem(sys.modules, "cupy", pretend_cupy.cupy)
    assert "'cuda:7' can't be used: there is 1 GPU, cuda:0" in refused("evaluate", run, "--device", "cuda:7")
