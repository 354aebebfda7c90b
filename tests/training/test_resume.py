"""A training that was stopped and resumed ends bit for bit as if it had not been stopped."""

import json
import shutil
from dataclasses import replace

import pytest
from small_trainings import CASES, base
from steps import Killed, StopsAfter, outcome

from tinyvit.tensors import load_tensors
from tinyvit.training import resume, train, trainer
from tinyvit.training.checkpoints import Checkpoints
from tinyvit.training.trainer import load_split

pytestmark = pytest.mark.end_to_end

# 1,437 images in batches of 256: 5 steps an epoch.
CONFIG = replace(base(optim_ema=0.9), batch_size=256, epochs=3, threads=2, precision="float32", save_minutes=0.0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the run of a teacher."""
    path = tmp_path_factory.mktemp("uninterrupted")
    train(base(epochs=1), path / "teacher")
    return path


@pytest.mark.parametrize("case", CASES)
def test_a_run_killed_again_and_again_ends_as_if_it_had_not_been(folder, tmp_path, case):
    config = replace(CASES[case](folder), batch_size=256, epochs=2, threads=2, save_minutes=0.0)
    train(config, tmp_path / "whole")
    with pytest.raises(Killed):
        train(config, tmp_path / "run", StopsAfter(2, Killed))
    for steps in (1, 3, 2):
        with pytest.raises(Killed):
            resume(tmp_path / "run", StopsAfter(steps, Killed))
    resume(tmp_path / "run")
    assert outcome(tmp_path / "run") == outcome(tmp_path / "whole")


@pytest.fixture(scope="module")
def whole(folder):
    train(CONFIG, folder / "whole")
    return folder / "whole"


def test_a_kill_loses_only_the_minutes_since_the_last_checkpoint(tmp_path):
    config = replace(CONFIG, save_minutes=1e9)
    with pytest.raises(Killed):
        train(config, tmp_path / "run", StopsAfter(12, Killed))
    (newest, before) = sorted((tmp_path / "run" / "checkpoints").glob("step-*.json"), reverse=True)
    assert (newest.stem, before.stem) == ("step-00000010-epoch-2", "step-00000005-epoch-1")


def test_a_run_without_a_checkpoint_starts_afresh(whole, tmp_path):
    with pytest.raises(Killed):
        train(replace(CONFIG, save_minutes=1e9), tmp_path / "run", StopsAfter(3, Killed))
    assert not any((tmp_path / "run" / "checkpoints").iterdir())
    resume(tmp_path / "run", save_minutes=0.0)
    assert outcome(tmp_path / "run") == outcome(whole)


@pytest.fixture
def stopped(tmp_path):
    """A run that was killed in its second epoch."""
    with pytest.raises(Killed):
        train(CONFIG, tmp_path / "stopped", StopsAfter(8, Killed))
    return tmp_path / "stopped"


@pytest.mark.parametrize("change", [
    {"epochs": 1}, {"batch_size": 100}, {"optim": replace(CONFIG.optim, ema=None)},
    {"optim": replace(CONFIG.optim, name="sgd")}, {"model": replace(CONFIG.model, depth=1)},
])  # fmt: skip
def test_a_checkpoint_of_another_configuration_is_refused(stopped, change):
    with pytest.raises(ValueError, match="checkpoint|state|expected|missing"):
        resume(stopped, **change)


def test_a_finished_run_is_left_unchanged(whole, tmp_path, capsys):
    shutil.copytree(whole, tmp_path / "run")
    summary = json.loads((whole / "summary.json").read_text())
    before = {file: file.read_bytes() for file in (tmp_path / "run").rglob("*") if file.is_file()}
    capsys.readouterr()
    assert resume(tmp_path / "run") == summary
    assert "test accuracy" in capsys.readouterr().out
    assert {file: file.read_bytes() for file in (tmp_path / "run").rglob("*") if file.is_file()} == before
    config = tmp_path / "run" / "config.json"
    written = config.read_text()
    for old, new in (('"epochs": 3', '"epochs": 400'), ('"lr": ', '"lr": 1')):
        config.write_text(written.replace(old, new, 1))
        with pytest.raises(ValueError, match="is finished, and its config.json isn't what was trained"):
            resume(tmp_path / "run")


@pytest.mark.parametrize("missing", [
    ["summary.json"], ["summary.json", "model.safetensors"], ["summary.json", "model.json"], ["model.safetensors"],
    ["summary.json", "metrics.jsonl"], ["summary.json", "curves.png"],
])  # fmt: skip
def test_a_run_that_lacks_a_file_at_its_end_is_finished(whole, tmp_path, missing):
    shutil.copytree(whole, tmp_path / "run")
    for name in missing:
        (tmp_path / "run" / name).unlink()
    resume(tmp_path / "run")
    assert outcome(tmp_path / "run") == outcome(whole)
    assert all((tmp_path / "run" / name).exists() for name in missing)


def test_damaged_final_weights_are_restored_from_the_checkpoint(whole, tmp_path):
    shutil.copytree(whole, tmp_path / "run")
    (tmp_path / "run" / "model.safetensors").write_bytes(b"x" * 100)
    resume(tmp_path / "run")
    assert outcome(tmp_path / "run") == outcome(whole)


def test_data_other_than_before_are_refused_and_the_run_stays(stopped, monkeypatch):
    def other(config):
        split = load_split(config)
        return split._replace(train=replace(split.train, labels=(split.train.labels + 1) % 10))

    before = {file: file.read_bytes() for file in stopped.rglob("*") if file.is_file()}
    monkeypatch.setattr(trainer, "load_split", other)
    with pytest.raises(ValueError, match="digits holds other training images or classes than those that the run began"):
        resume(stopped)
    assert {file: file.read_bytes() for file in stopped.rglob("*") if file.is_file()} == before


def test_tensorboard_has_every_row_again_after_a_kill(tmp_path):
    class KilledAtAnEvaluation(StopsAfter):
        def epoch(self, row):
            super().epoch(row)
            if row["epoch"] == 2:
                raise Killed

    with pytest.raises(Killed):
        train(replace(CONFIG, tensorboard=True), tmp_path / "run", KilledAtAnEvaluation(0))
    resume(tmp_path / "run")
    newest = max((tmp_path / "run" / "tensorboard").iterdir(), key=lambda file: file.stat().st_mtime_ns)
    assert newest.read_bytes().count(b"accuracy/test") == CONFIG.epochs


def test_the_wait_for_data_is_that_of_all_parts(stopped):
    checkpoints = Checkpoints(stopped / "checkpoints")
    about, tensors = checkpoints.newest(print)
    assert all(seconds > 0 for seconds in about["data_wait"])
    del about["files"]
    newest = checkpoints.manifests()[0]
    newest.unlink()
    checkpoints.write(newest.stem, tensors, about | {"data_wait": [3e9, 1e9]})
    assert resume(stopped)["data_wait"] == pytest.approx(0.75, abs=1e-3)


def test_the_best_weights_are_those_of_the_best_row(whole):
    rows = [json.loads(line) for line in (whole / "metrics.jsonl").read_text().splitlines()]
    best = max(rows, key=lambda row: (row["test_accuracy"], row["step"]))
    (found,) = (whole / "checkpoints").glob("best-*.safetensors")
    assert found.stem == f"best-{best['step']:08d}"
    final = load_tensors(whole / "model.safetensors")
    assert load_tensors(found).keys() == final.keys()
