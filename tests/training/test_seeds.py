"""Trainings with several seeds: `tinyvit train PRESET --seeds …`."""

import json
import statistics
import subprocess
import sys
from dataclasses import replace

import pytest

from tinyvit.training import preset, train
from tinyvit.training.run_folder import RunFolder
from tinyvit.training.seeds import resume_seeds, train_seeds

pytestmark = pytest.mark.end_to_end

TINY = ["--epochs", "40", "--model.depth", "1", "--model.embed-dim", "16", "--batch-size", "256", "--device", "cpu",
        "--threads", "1", "--save-minutes", "0.001", "--model.patch-size", "4"]  # fmt: skip


def weights(run):
    return (run / "model.safetensors").read_bytes()


@pytest.fixture(scope="module")
def config():
    digits = preset("digits")
    model = replace(digits.model, depth=1, embed_dim=16, patch_size=4)
    return replace(digits, model=model, epochs=40, batch_size=256, device="cpu", threads=1)


@pytest.fixture(scope="module")
def folder(config, tmp_path_factory):
    """Two finished runs."""
    path = tmp_path_factory.mktemp("seeds") / "both"
    train_seeds(config, (3, 5), path)
    return path


def test_each_run_is_that_of_its_seed_alone(config, folder, tmp_path):
    train(replace(config, seed=5), tmp_path / "alone")
    assert weights(tmp_path / "alone") == weights(folder / "seed-5") != weights(folder / "seed-3")
    assert RunFolder(folder / "seed-3").read_config().seed == 3


def test_the_summary_has_mean_deviation_and_the_worst(folder):
    summary = json.loads((folder / "summary.json").read_text())
    runs = {seed: json.loads((folder / f"seed-{seed}" / "summary.json").read_text()) for seed in (3, 5)}
    assert summary["seeds"] == [3, 5] and set(summary["scores"]) == {"test_accuracy", "test_loss"}
    for name, score in summary["scores"].items():
        values = [run[name] for run in runs.values()]
        assert score["values"] == values
        assert score["mean"] == pytest.approx(sum(values) / 2)
        assert score["std"] == pytest.approx(statistics.stdev(values))
    lowest = min(runs, key=lambda seed: runs[seed]["test_accuracy"])
    assert summary["worst"]["seed"] == lowest and summary["worst"]["test_accuracy"] == runs[lowest]["test_accuracy"]
    assert summary["seconds"] == sum(run["seconds"] for run in runs.values())


def test_resuming_finished_runs_changes_none(folder):
    files = [file for file in folder.glob("seed-*/*") if file.is_file() and file.name != ".lock"]
    before = {file: (file.read_bytes(), file.stat().st_mtime_ns) for file in files}
    assert resume_seeds(folder) == json.loads((folder / "summary.json").read_text())
    assert {file: (file.read_bytes(), file.stat().st_mtime_ns) for file in before} == before


def test_ctrl_c_ends_the_whole_which_is_resumed_bit_for_bit(folder, tmp_path):
    """The changes of a resumed training are noted for the seeds to come."""
    run = tmp_path / "runs"
    process = subprocess.Popen(
        [sys.executable, "-m", "tinyvit", "train", "digits", *TINY, "--seeds", "3", "5", "--out", run],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    while "test acc." not in process.stdout.readline():
        pass
    process.send_signal(2)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 130 and not (run / "seed-5").exists()
    assert out.endswith(f"go on with all seeds: tinyvit train --resume {run}\n")
    before = (run / "seeds.json").read_bytes()
    with pytest.raises(ValueError, match="holds float32 .*, and expected is float64"):
        resume_seeds(run, precision="float64")
    assert (run / "seeds.json").read_bytes() == before, "refused changes aren't noted"
    scores = resume_seeds(run, save_minutes=7.0)["scores"]
    assert json.loads((run / "seeds.json").read_text())["config"]["save_minutes"] == 7.0
    assert scores == json.loads((folder / "summary.json").read_text())["scores"]
    for seed in (3, 5):
        assert weights(run / f"seed-{seed}") == weights(folder / f"seed-{seed}")


def test_what_is_refused_leaves_no_folder(config, tmp_path):
    with pytest.raises(ValueError, match="the model has 9 classes, but the data set has 10"):
        train_seeds(replace(config, model=replace(config.model, num_classes=9)), (1, 2), tmp_path / "runs")
    assert not any(tmp_path.iterdir())


def test_a_folder_of_several_runs_is_not_taken_for_one(config, folder):
    with pytest.raises(ValueError, match="holds a run for each of several seeds; name one of them"):
        RunFolder(folder).read_config()
    with pytest.raises(ValueError, match="already holds a run"):
        train(config, folder)
    with pytest.raises(ValueError, match="already holds a run"):
        train_seeds(config, (1,), folder)


def test_a_training_in_use_or_a_damaged_list_of_seeds_is_refused(config, folder, tmp_path):
    with RunFolder(folder).hold_lock(), pytest.raises(ValueError, match="in use by another training"):
        resume_seeds(folder)
    for content in (b"", b"[]", b'{"seeds": [1]}', b'{"seeds": [1, 1], "config": {}}', b'{"seeds": [1], "config": {}}'):
        (tmp_path / "seeds.json").write_bytes(content)
        with pytest.raises(ValueError, match="seeds.json"):
            resume_seeds(tmp_path)
