"""`tinyvit export`. ONNX is tested in tests/parity/test_by_command.py, since it needs the package onnx."""

import re
import sys

import numpy as np
import pytest
from small_weights import WEIGHTS

from tinyvit import create_model, interop
from tinyvit.data.preprocessing import Preprocessing
from tinyvit.training.trained import load_trained

TINY = ["--epochs", "1", "--batch-size", "256", "--model.depth", "1", "--model.embed-dim", "16"]
PLACES = {"timm": "timm", "huggingface": "huggingface", "npz": "w.npz"}
FILES = {"timm": {"config.json", "model.safetensors"},
         "huggingface": {"config.json", "model.safetensors", "preprocessor_config.json"}}  # fmt: skip


@pytest.fixture
def imported(tinyvit, tmp_path):
    """A run whose model every format can hold."""
    interop.save(WEIGHTS, tmp_path / "source", "timm")
    assert tinyvit("import", "source", "--out", "run")[0] == 0
    return tmp_path / "run"


@pytest.mark.parametrize("form", PLACES)
def test_every_format_is_written_and_says_how_it_is_loaded(tinyvit, imported, form):
    path = imported.parent / PLACES[form]
    status, out, err = tinyvit("export", "run", "--format", form, "--out", PLACES[form])
    assert (status, err) == (0, "")
    *notes, written, how = out.splitlines()
    assert ("tinyvit import w.npz --img-size 8 12 --out RUN" in how) == (form == "npz")
    assert written == f"written to {PLACES[form]}: 3,315 parameters" and how.startswith("load it: ")
    assert len(notes) == (1 if form == "npz" else 0)
    found = {file.name for file in path.iterdir()} if path.is_dir() else None
    assert found == FILES.get(form) and set(imported.parent.iterdir()) == {imported.parent / "source", imported, path}


def test_a_trained_run_is_exported_and_comes_back_bit_for_bit(tinyvit, run):
    assert tinyvit("export", run, "--format", "timm", "--out", "timm")[0] == 0
    assert tinyvit("import", "timm", "--out", "back")[0] == 0
    there, here = load_trained(run, "cpu"), load_trained("back", "cpu")
    state = here.model.state_dict()
    for name, array in there.model.state_dict().items():
        assert state[name].tobytes() == array.tobytes()
    assert here.preprocessing.classes == there.preprocessing.classes == tuple("0123456789")
    white = np.full((1, 1, 8, 8), 200, "uint8")
    np.testing.assert_allclose(here.preprocessing(white), there.preprocessing(white), rtol=1e-6)


@pytest.mark.parametrize("task", ["mae", "masked-patches", "dino"])
def test_of_a_task_without_labels_the_vit_is_exported_and_comes_back_bit_for_bit(tinyvit, tmp_path, task):
    options = {"mae": ["--objective.decoder-dim", "8", "--objective.share", "0.5"], "masked-patches": [], "dino": [
        "--model.dynamic-img-size", "--objective.prototypes", "8", "--objective.hidden", "8"]}[task]  # fmt: skip
    assert tinyvit("train", "digits", "--task", task, *TINY, *options, "--images", "50", "--out", "run")[0] == 0
    status, out, err = tinyvit("export", "run", "--format", "timm", "--out", "timm")
    assert (status, err) == (0, "") and "written to timm" in out
    assert tinyvit("import", "timm", "--out", "back")[0] == 0
    there, here = load_trained("run", "cpu").model, load_trained("back", "cpu").model
    state = here.state_dict()
    assert here.config.num_classes == 0 and state.keys() - there.state_dict().keys() <= {"pos_embed"}
    for name, array in there.state_dict().items():
        assert state[name].tobytes() == array.tobytes()


def test_the_best_weights_are_exported_if_requested(tinyvit, run):
    assert tinyvit("export", run, "--format", "timm", "--out", "best", "--best")[0] == 0
    weights = interop.load("best")
    for name, array in load_trained(run, "cpu", best=True).model.state_dict().items():
        np.testing.assert_array_equal(weights.state[name], array)


@pytest.mark.parametrize(("form", "name"), [*PLACES.items(), ("onnx", "w.onnx")])
def test_nothing_is_ever_overwritten(refused, imported, form, name):
    place = imported.parent / name
    if form in FILES:
        place.mkdir()
        (place / "mine").write_text("mine")
    else:
        place.write_text("mine")
    line = refused("export", "run", "--format", form, "--out", name)
    assert f"{name} is there already; choose another place" in line
    assert (place / "mine" if place.is_dir() else place).read_text() == "mine"


def test_what_a_format_cannot_hold_is_refused_and_nothing_is_left(refused, run, tmp_path):
    line = refused("export", run, "--format", "npz", "--out", "w.npz")
    assert "has no place for activation 'gelu'" in line
    assert not any(tmp_path.iterdir())


def test_without_onnx_the_error_says_how_to_install_it_and_nothing_is_left(refused, run, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    assert "pip install 'tinyvit[onnx]'" in refused("export", run, "--format", "onnx", "--out", "w.onnx")
    assert not any(tmp_path.iterdir())


def test_an_invalid_command_line_is_refused(refused, imported):
    for arguments, message in (
        ([], "missing RUN: The folder of a run"),
        (["run"], "--out|--format"),
        (["run", "--format", "timm"], "--out"),
        (["run", "--out", "x"], "--format"),
        (["run", "--format", "torch", "--out", "x"], "'torch' for argument '--format'"),
        (["nowhere", "--format", "timm", "--out", "x"], "nowhere is not a run folder"),
        (["run", "--format", "npz", "--out", "x"], r"expected a file that ends in \.npz, got x"),
        (["run", "--format", "onnx", "--out", "x.npz"], r"expected a file that ends in \.onnx, got x\.npz"),
        (["run", "--format", "timm", "--out", "x.safetensors"], "the format timm is a folder; expected a name for one"),
    ):
        assert re.search(message, refused("export", *arguments)), message
        assert not list(imported.parent.glob("x*"))


@pytest.mark.parametrize("name, architecture", [("resnet8_digits", "ResNet"), ("resnetv2_50x1_bit", "Bit")])
def test_a_convolutional_network_goes_to_hugging_face_and_comes_back(tinyvit, tmp_path, name, architecture):
    small = dict(width=8, depths=(1, 1), stem="conv7", num_classes=3, img_size=16)
    model = create_model(name, **small | ({"num_groups": 4} if architecture == "Bit" else {}))
    size, half = (16, 16), (0.5,) * model.config.in_chans
    prepared = Preprocessing(("cat", "dog", "eel"), model.config.in_chans, size, half, half, crop=None)
    interop.save(interop.Weights(model.config, model.state_dict(), prepared), tmp_path / "source", "huggingface")
    assert tinyvit("import", "source", "--out", "run")[0] == 0
    status, out, err = tinyvit("export", "run", "--format", "huggingface", "--out", "again")
    assert (status, err) == (0, "") and f"transformers.{architecture}ForImageClassification.from_pretrained" in out
    assert (tmp_path / "again" / "model.safetensors").read_bytes() == (
        tmp_path / "source" / "model.safetensors").read_bytes()  # fmt: skip
    for form, place, why in (
        ("timm", "timm", "timm's layout has no name for a"), ("npz", "w.npz", "can't be written in the format 'npz'"),
        ("onnx", "w.onnx", "can't be written in the format 'onnx'"),
    ):  # fmt: skip
        status, out, err = tinyvit("export", "run", "--format", form, "--out", place)
        assert status == 2 and why in err and err.count("\n") == 1
        assert not (tmp_path / place).exists()
