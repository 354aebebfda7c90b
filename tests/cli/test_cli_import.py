"""`tinyvit import` and `tinyvit export`. ONNX is tested in tests/parity/test_by_command.py, since it needs the package
onnx; formats and layouts in tests/interop."""

import hashlib
import json
import re
import shlex
import signal
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from small_weights import CONFIG, PLACES, PREPARED, weights_of, write_all

from tinyvit import interop
from tinyvit.tensors import write_tensors
from tinyvit.training.trained import load_trained

TINY = ["--model.depth", "1", "--model.embed-dim", "16", "--images", "50"]
FOLDERS = {"timm": {"config.json", "model.safetensors"},
           "huggingface": {"config.json", "model.safetensors", "preprocessor_config.json"}}  # fmt: skip


@pytest.fixture
def sources(tmp_path):
    """The same weights in every format."""
    return write_all(tmp_path)


@pytest.fixture
def imported(sources, succeeds):
    """A run imported from timm's weights, whose images are stretched."""
    assert succeeds("import", "timm", "--out", "run") == (
        "read as timm: 3,315 parameters, images of 8×12, 3 classes\nwritten to run: tinyvit predict run IMAGE…\n"
    )
    return sources / "run"


def weights_in(run):
    return (run / "model.safetensors").read_bytes()


@pytest.mark.parametrize("form", PLACES)
def test_exported_weights_are_imported_bit_for_bit(succeeds, imported, sources, form):
    size = ["--img-size", "8", "12"] if form == "npz" else []
    out = f"again-{PLACES[form]}"
    *notes, written, how = succeeds("export", "run", "--format", form, "--out", out).splitlines()
    assert written == f"written to {out}: 3,315 parameters" and how.startswith("load it: ")
    assert len(notes) == (form == "npz") and (f"import {out} --img-size 8 12 --out RUN" in how) == (form == "npz")
    if form in FOLDERS:
        assert {file.name for file in (sources / out).iterdir()} == FOLDERS[form]
    succeeds("import", out, "--out", "back", *size)
    succeeds("import", PLACES[form], "--out", "first", *size)
    assert weights_in(sources / "back") == weights_in(sources / "first") == weights_in(imported)


def test_a_run_says_where_its_weights_came_from(imported, sources):
    content = weights_in(sources / "timm")
    about = json.loads((imported / "imported.json").read_text())
    assert about["files"]["model.safetensors"] == {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    assert (about["format"], about["source"], about["notes"], about["given"]) == ("timm", "timm", [], {})
    assert about["versions"].keys() == {"tinyvit", "numpy"}
    trained = load_trained(imported, "cpu")
    assert trained.config.model == CONFIG and trained.config.dataset == "folder"
    assert trained.preprocessing == PREPARED


def test_what_the_source_leaves_open_is_noted_and_can_be_given(succeeds, sources):
    interop.save(weights_of(replace(CONFIG, activation="gelu"), dtype="float64"), sources / "plain", "timm")
    given = ["--num-heads", "3", "--img-size", "8", "12", "--mean", "0.1", "0.2", "0.3", "--std", "0.5"]
    *notes, _, written = succeeds("import", "plain/model.safetensors", "--out", "a run", *given).splitlines()
    assert notes and all(line.startswith("note: ") for line in notes)
    assert written == "written to a run: tinyvit predict 'a run' IMAGE…"
    about = json.loads((sources / "a run" / "imported.json").read_text())
    assert [f"note: {note}" for note in about["notes"]] == notes
    assert about["given"] == {"num_heads": 3, "img_size": [8, 12], "mean": [0.1, 0.2, 0.3], "std": [0.5]}
    trained = load_trained(sources / "a run", "cpu")
    assert (trained.preprocessing.mean, trained.preprocessing.std) == ((0.1, 0.2, 0.3), (0.5,) * 3)
    assert (trained.config.model.num_heads, trained.model.dtype) == (3, "float64")


def test_a_model_without_a_head_is_imported_and_names_no_classes(succeeds, as_json, refused, sources, photos):
    interop.save(weights_of(replace(CONFIG, num_classes=0)), sources / "headless", "huggingface")
    out = succeeds("import", "headless", "--out", "run")
    assert "no head" in out and out.endswith("tinyvit features run IMAGE… --out FEATURES.npy\n")
    for command in (["predict", "run", photos], ["evaluate", "run", "--data-dir", photos],
                    ["inspect", "run", "--html", "page.html", "--data-dir", photos]):  # fmt: skip
        assert "run: the model has no head (num_classes is 0): it gives features; tinyvit fea" in refused(*command)
    left_out = as_json("inspect", "run", "--image", photos / "0.png")["left_out"]
    assert "the model has no head" in left_out["class"] and "attention" not in left_out
    for form in ("timm", "huggingface"):
        out = succeeds("export", "run", "--format", form, "--out", f"again-{form}")
        assert ("add_pooling_layer=False" in out) == (form == "huggingface")
        succeeds("import", f"again-{form}", "--out", f"back-{form}")
        assert weights_in(sources / f"back-{form}") == weights_in(sources / "run")


@pytest.mark.parametrize("options", [
    ["--best"], ["--task", "mae", "--objective.decoder-dim", "8", "--objective.share", "0.5"],
    ["--task", "masked-patches"],
    ["--task", "dino", "--model.dynamic-img-size", "--objective.prototypes", "8", "--objective.hidden", "8"],
])  # fmt: skip
def test_a_trained_run_is_exported_without_its_task_and_comes_back_bit_for_bit(succeeds, trained, options):
    best = options == ["--best"]
    run = trained("digits", *TINY, *options * (not best))
    succeeds("export", run, "--format", "timm", "--out", "timm", *options * best)
    succeeds("import", "timm", "--out", "back")
    there, here = load_trained(run, "cpu", best), load_trained("back", "cpu")
    state = here.model.state_dict()
    assert state.keys() - there.model.state_dict().keys() <= {"pos_embed"}
    for name, array in there.model.state_dict().items():
        assert state[name].tobytes() == array.tobytes()
    assert here.preprocessing.classes == (tuple("0123456789") if best else ())
    white = np.full((1, 1, 8, 8), 200, "uint8")
    np.testing.assert_allclose(here.preprocessing(white), there.preprocessing(white), rtol=1e-6)


# -- refused input -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("arguments", "message"), [
    ("import", "missing SOURCE: The weights"),
    ("import timm", "--out"),
    ("import nowhere --out x", "nowhere doesn't exist"),
    ("import ~nobody-of-this-name --out x", "~nobody-of-this-name doesn't exist; expected a"),
    ("import timm --out x --num-heads 5", "timm: .*says num_heads 3.* 5 was given"),
    ("import timm --out x --mean 0.5 0.4", "mean that was given is .* expected a finite number for each"),
    ("import timm --out x --std 0", "std that was given is .* expected a positive finite number"),
    ("import timm --out x --mean much", "--mean.*'?much'?"),
    ("export run", "--out|--format"),
    ("export run --format torch --out x", "'torch' for argument '--format'"),
    ("export run --format npz --out x", r"expected a file that ends in \.npz, got x"),
    ("export run --format onnx --out x.npz", r"expected a file that ends in \.onnx, got x\.npz"),
    ("export run --format timm --out x.safetensors", "the format timm is a folder; expected a name for one"),
    ("export run --format onnx --out x.onnx", r"pip install 'tinyvit\[onnx\]'"),
    ("export {run} --format npz --out x.npz", "has no place for activation 'gelu'"),
    ("train --resume run --data-dir timm", "run has no training to go on with; fine-tune it: tinyvit finetune run"),
    ("train digits --out run", r"already holds a run \(config.json"),
    *((f"import timm --out {out}", f"{out} is there already; choose another place")
      for out in ("run", "file", "link", "loop", "timm", "empty", r"\.", "/")),
    *((f"export run --format {form} --out there{end}", f"there{end} is there already; choose another place")
      for form, end in (("timm", ""), ("huggingface", ""), ("npz", ".npz"), ("onnx", ".onnx"))),
])  # fmt: skip
def test_invalid_input_is_refused_and_nothing_is_ever_overwritten(
    refused, run, imported, sources, monkeypatch, arguments, message
):
    monkeypatch.setitem(sys.modules, "onnx", None)
    for name in ("empty", "there"):
        (sources / name).mkdir()
    for name in ("file", "there.npz", "there.onnx"):
        (sources / name).write_text("mine")
    (sources / "link").symlink_to(sources / "empty")
    (sources / "loop").symlink_to("loop")
    assert re.search(message, refused(*shlex.split(arguments.format(run=run).replace("\\", ""))))


@pytest.mark.skipif(sys.platform != "linux", reason="memory has to be limited")
def test_weights_are_imported_in_less_memory_than_they_take(tmp_path):
    """A ViT-B of 346 MB in a process limited to 200 MB: arrays are written from the mapped file."""
    from tinyvit import create_model
    from tinyvit.interop.names import state_shapes

    shapes = state_shapes(create_model("vit_base_patch16_224", device="meta").config)
    write_tensors(tmp_path / "vit.safetensors", {name: np.zeros(shape, "float32") for name, shape in shapes.items()})
    limited = "import resource; resource.setrlimit(resource.RLIMIT_DATA, (200_000_000, 200_000_000))"
    process = in_new_process(tmp_path, limited, "import", "vit.safetensors", "--out", "run")
    assert process.communicate(timeout=120)[1] == "" and process.returncode == 0
    assert (tmp_path / "run" / "model.safetensors").stat().st_size > 340e6


# -- out of disk space, or terminated: each in its own process ---------------------------------------------------------


def in_new_process(folder, code, *arguments):
    """Run a command in a new process, after some code."""
    command = "; from tinyvit import cli; cli.main(sys.argv[1:])"
    return subprocess.Popen([sys.executable, "-c", f"import sys; {code}{command}", *arguments], cwd=folder,
                            stderr=subprocess.PIPE, text=True)  # fmt: skip


@pytest.mark.skipif(sys.platform != "linux", reason="the size of files has to be limited")
@pytest.mark.parametrize("arguments", [("import", "timm"), *(("export", "run", "--format", form) for form in PLACES)])
def test_a_full_disk_is_one_line_with_the_place_and_leaves_nothing(imported, sources, contents, arguments):
    before = contents(sources)
    out = "new.npz" if "npz" in arguments else "new"
    limited = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))"
    process = in_new_process(sources, limited, *arguments, "--out", out)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert re.fullmatch(rf"tinyvit: error: {out} can't be written: .*File too large.* make room or choose .*\n", err)
    assert contents(sources) == before


# The file is complete, and takes a minute to reach the disk.
SLOW = (
    "import time; from tinyvit import files; "
    "files.sync = lambda path: (print('waits', file=sys.stderr, flush=True), time.sleep(60))"
)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signals")
@pytest.mark.parametrize(("name", "status"), [("SIGTERM", 143), ("SIGINT", 130)])
@pytest.mark.parametrize("arguments", [("import", "timm"), ("export", "run", "--format", "timm")])
def test_a_terminated_command_leaves_nothing(imported, sources, contents, arguments, name, status):
    before = contents(sources)
    process = in_new_process(sources, SLOW, *arguments, "--out", "new")
    assert process.stderr.readline() == "waits\n"
    process.send_signal(getattr(signal, name))
    process.communicate(timeout=60)
    assert process.returncode == status
    assert contents(sources) == before
