"""tinyvit train, and tinyvit train --resume; what `train PRESET` refuses is in test_cli.py."""

import json
import re
import sys

import pytest

TINY = ["--model.embed-dim", "16", "--model.depth", "1", "--batch-size", "256", "--device", "cpu"]


@pytest.fixture
def unfinished(own_run):
    """A run of two epochs that stopped after the first."""
    config = json.loads((own_run / "config.json").read_text())
    (own_run / "config.json").write_text(json.dumps({**config, "epochs": 2}))
    (own_run / "summary.json").unlink()
    return own_run


@pytest.mark.parametrize("form", ["--resume {}", "--resume={}", "--resume {} --threads 1", "--resume {} --device cpu"])
def test_a_run_is_resumed_without_a_preset_wherever_it_was_moved(succeeds, unfinished, form):
    out = succeeds("train", *form.format(unfinished).split())
    assert "going on after step 5 of 10" in out and "test accuracy" in out
    assert json.loads((unfinished / "summary.json").read_text())["epochs"] == 2


def test_a_finished_run_is_shown_and_not_trained_again(succeeds, run):
    before = (run / "model.safetensors").stat().st_mtime_ns
    out = succeeds("train", "--resume", run)
    assert "nothing left to do" in out and "test accuracy" in out and f"tinyvit inspect {run} --html\n" in out
    assert (run / "model.safetensors").stat().st_mtime_ns == before


def test_a_finished_run_without_its_preprocessing_gets_it_again(succeeds, refused, own_run):
    preprocessing = own_run / "preprocessing.json"
    before = preprocessing.read_bytes()
    preprocessing.unlink()
    assert f"{preprocessing} is missing; finish the run with tinyvit train --resume" in refused("evaluate", own_run)
    succeeds("train", "--resume", own_run)
    assert preprocessing.read_bytes() == before


@pytest.mark.parametrize(("args", "env", "n"), [("--seeds 0 1", "", 1), ("--kernels numpy", "", 0), ("", "numpy", 0)])
def test_a_training_without_numba_says_once_what_it_would_gain(succeeds, monkeypatch, args, env, n):
    monkeypatch.setenv("TINYVIT_KERNELS", env)
    monkeypatch.setattr("tinyvit.levels.find_spec", lambda name: None)
    out = succeeds("train", "digits", *TINY, "--epochs", "2", *args.split())
    assert out.count("note: numba is not installed; with it a step") == n == out.count("'tinyvit[fast]'")


def test_without_tensorboardx_no_run_is_begun(refused, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    assert re.search(r"tensorboardX, .*; install .*\[tensorboard\]", refused("train", "digits", "--tensorboard"))


@pytest.mark.parametrize(("arguments", "message"), [
    ("--resume", "--resume"),
    ("--resume=", "expected a path, got an empty one"),
    ("--resume nowhere", "nowhere is not a run folder: it doesn't exist"),
    ("--resume {} --epochs 3", "--epochs.*options: tinyvit train --resume RUN --help"),
    ("--resume {} --threads 0", "threads must be a positive int"),
    ("digits --resume {}", "without a preset: tinyvit train --resume RUN"),
    ("digits --out {}", r"already holds a run \(.*\).*tinyvit train --resume"),
])  # fmt: skip
def test_a_run_that_cannot_be_resumed_is_refused_and_left_unchanged(refused, unfinished, arguments, message):
    assert re.search(message, refused("train", *arguments.format(unfinished).split()))


def test_a_folder_in_use_or_with_a_damaged_configuration_is_refused(refused, unfinished):
    from tinyvit.training.run_folder import RunFolder

    with RunFolder(unfinished).hold_lock():
        assert "in use by another training" in refused("train", "--resume", unfinished)
    (unfinished / "config.json").write_text("{")
    assert "config.json is not a tinyvit configuration" in refused("train", "--resume", unfinished)


def test_a_run_killed_before_its_configuration_was_written_starts_afresh(succeeds, tmp_path):
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    (tmp_path / "run" / ".lock").touch()
    succeeds("train", "digits", "--epochs", "1", "--out", tmp_path / "run", *TINY)


def test_a_training_that_diverges_says_what_to_do_and_where_the_last_good_weights_are(tinyvit):
    status, _, err = tinyvit("train", "digits", "--epochs", "9", "--optim.lr", "1e18", "--optim.warmup", "0", *TINY)
    assert status == 2 and err.count("\n") == 1 and "nothing was saved yet" in err
    assert re.search(r"the training diverged: .* NaN or infinite .* lower optim\.lr", err)


@pytest.mark.parametrize("options", [
    "--optim.name sgd --optim.nesterov --optim.lr 0.1 --optim.schedule one-cycle --optim.warmup 0.3",
    "--optim.name adagrad --optim.schedule constant --optim.layer-decay 0.7",
    "--optim.name adam --optim.schedule linear --optim.accumulate 2 --optim.ema 0.9",
    "--optim.name muon --optim.keep-patches 0.5 --augment.policy trivial --augment.erase 0.25",
    "--model.dynamic-img-size --optim.small-sizes 4 --optim.small-until 0.5 --augment.mixup 0.8 --augment.cutmix 1",
])  # fmt: skip
def test_every_kind_of_recipe_trains(succeeds, tmp_path, options):
    succeeds("train", "digits", "--epochs", "2", "--out", tmp_path / "run", *TINY, *options.split())
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["skipped_steps"] == 0 and summary["test_loss"] < 2.5


def test_some_classes_some_images_and_a_part_set_aside_can_be_trained_on(succeeds, as_json, tmp_path):
    options = "--classes 7 1 --images 140 --validation 0.5 --epochs 2 --evaluate-every 2 --tensorboard --out run"
    out = succeeds("train", "digits", *TINY, *options.split(), "--batch-size", "10")
    run = tmp_path / "run"
    summary, config = (json.loads((run / name).read_text()) for name in ("summary.json", "config.json"))
    assert (config["classes"], config["images"], config["model"]["num_classes"]) == (["7", "1"], 140, 2)
    assert summary["steps"] == 2 * 14 and "test_accuracy" not in summary and 0 <= summary["validation_accuracy"] <= 1
    assert "validation accuracy" in out and list((run / "tensorboard").iterdir())
    assert len((run / "metrics.jsonl").read_text().splitlines()) == 1
    assert list(as_json("evaluate", run)["per_class"]) == ["7", "1"]
