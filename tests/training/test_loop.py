import io
import json
import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from tinyvit import ViT, data
from tinyvit.training import PRESETS, AugmentConfig, OptimConfig, evaluate, train, trainer
from tinyvit.training.run_folder import RunFolder
from tinyvit.training.trained import load_trained

pytestmark = pytest.mark.end_to_end

# 1,437 images in batches of 128: 11 steps an epoch.
CONFIG = replace(
    PRESETS["digits"],
    model=replace(PRESETS["digits"].model, embed_dim=16, depth=1, drop_rate=0.1, drop_path_rate=0.1),
    epochs=2,
    batch_size=128,
    threads=2,
    device="cpu",
    optim=OptimConfig(lr=5e-3, warmup=0.5),
    augment=AugmentConfig(crop=1),
)

STATES = "step-00000011-epoch-1", "step-00000022-epoch-2"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A finished run: its folder and its summary."""
    path = tmp_path_factory.mktemp("runs") / "run"
    return path, train(CONFIG, path)


def weights(path):
    return (path / "model.safetensors").read_bytes()


def test_a_run_leaves_the_documented_files_and_no_others(run):
    files = {str(file.relative_to(run[0])) for file in run[0].rglob("*") if file.is_file()}
    expected = "config.json preprocessing.json metrics.jsonl model.safetensors model.json summary.json curves.png"
    states = {f"checkpoints/{name}.{end}" for name in STATES for end in ("json", "safetensors")}
    checkpoints = {file for file in files if file.startswith("checkpoints/")}
    assert files - checkpoints - {".lock"} == set(expected.split())
    assert checkpoints >= states and all("best-" in file for file in checkpoints - states)


def test_the_summary_is_what_train_returns_and_has_the_final_figures(run):
    path, summary = run
    assert json.loads((path / "summary.json").read_text()) == summary
    assert 0 <= summary["test_accuracy"] <= 1 and summary["test_loss"] > 0 and summary["seconds"] > 0
    assert (summary["epochs"], summary["steps"], summary["dataset"]) == (2, 22, "digits")
    assert summary["parameters"] == load_trained(path, "cpu").model.num_parameters()
    assert summary["versions"]["numpy"] == np.__version__
    assert "interrupted" not in summary
    assert 0 < summary["data_wait"] < 1


def test_metrics_have_a_row_per_epoch_and_the_last_one_is_the_summarys(run):
    path, summary = run
    rows = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    assert [(row["epoch"], row["step"]) for row in rows] == [(1, 11), (2, 22)]
    assert rows[0]["lr"] == CONFIG.optim.lr > rows[1]["lr"] > 0
    assert all(rows[-1][name] == summary[name] for name in ("test_accuracy", "test_loss"))
    for row in rows:
        assert 0 <= row["train_accuracy"] <= 1 and row["train_loss"] > 0
        assert 0 < row["data_wait"] < 1
    assert 0 < rows[0]["seconds"] < rows[1]["seconds"]


def test_the_saved_weights_have_the_scores_in_the_summary(run):
    path, summary = run
    scores = evaluate(load_trained(path, "cpu").model, data.digits().test, CONFIG.threads)
    assert 0.1 <= scores.pop("commonest") <= 1
    assert scores == {"accuracy": summary["test_accuracy"], "loss": summary["test_loss"]}


def test_the_configuration_in_the_folder_repeats_the_run_bit_for_bit(run, tmp_path):
    config = RunFolder(run[0]).read_config()
    assert config == replace(CONFIG, precision="float32")  # what auto became
    train(config, tmp_path / "again")
    assert weights(tmp_path / "again") == weights(run[0])


def test_recomputation_changes_no_bit_of_a_training(run, tmp_path, monkeypatch):
    contexts = []
    forward = ViT.forward
    monkeypatch.setattr(ViT, "forward", lambda self, x, ctx=None: contexts.append(ctx) or forward(self, x, ctx))
    train(replace(CONFIG, recompute=True), tmp_path / "again")
    assert weights(tmp_path / "again") == weights(run[0])
    training = [ctx for ctx in contexts if ctx and ctx.training]
    assert training and all(ctx.recompute for ctx in training)


def test_runs_without_a_given_folder_are_numbered(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        train(replace(CONFIG, epochs=1))
    assert {path.name for path in (tmp_path / "runs").iterdir()} == {"digits", "digits-2"}


def test_a_training_continues_when_its_output_pipe_is_closed(tmp_path):
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "tinyvit", "train", "digits", "--epochs", "1", "--out", str(tmp_path / "run")]
    ended = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=60)
    os.close(writer)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert (tmp_path / "run" / "summary.json").exists()


def test_a_relative_data_folder_is_stored_as_an_absolute_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(trainer, "load_split", lambda config: data.digits())
    train(replace(CONFIG, epochs=1, data_dir="somewhere"), "run")
    assert json.loads((tmp_path / "run" / "config.json").read_text())["data_dir"] == str(tmp_path / "somewhere")


@pytest.mark.parametrize(("shape", "message"), [
    ({"in_chans": 3}, r"reads images \(3, 8, 8\), but the data set's are \(1, 8, 8\)"),
    ({"num_classes": 9}, "has 9 classes, but the data set has 10"),
])  # fmt: skip
def test_a_model_that_does_not_fit_the_data_is_refused_before_anything_is_written(tmp_path, shape, message):
    with pytest.raises(ValueError, match=message):
        train(replace(CONFIG, model=replace(CONFIG.model, **shape)), tmp_path / "run")
    assert not (tmp_path / "run").exists()


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_terminal_shows_loss_accuracy_images_a_second_and_time_left(tmp_path, monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    train(replace(CONFIG, epochs=4), tmp_path / "run")
    bar = terminal.getvalue()
    for shown in ("epoch ", "loss ", "accuracy ", "/s", " left"):
        assert shown in bar


def test_without_a_terminal_there_is_a_line_per_epoch_and_a_table_at_the_end(tmp_path, capsys):
    summary = train(replace(CONFIG, epochs=1), tmp_path / "run")
    out, err = capsys.readouterr()
    assert err == ""
    accuracy = f"{100 * summary['test_accuracy']:.2f} %"
    assert [accuracy in line for line in out.splitlines() if line.startswith("      1 ")] == [True]
    assert f"test accuracy      {accuracy}" in out
    assert f"waiting for data   {100 * summary['data_wait']:.1f} %" in out
    assert out.rstrip().endswith(f"tinyvit inspect {tmp_path / 'run'} --html")
