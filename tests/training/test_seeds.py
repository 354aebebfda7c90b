"""Trainings with several seeds: `tinyvit train PRESET --seeds …`."""

import json
import statistics
import subprocess
import sys
import time
from dataclasses import replace

import pytest
from steps import StopsAfter

from tinyvit.training import preset, train
from tinyvit.training.run_folder import RunFolder
from tinyvit.training.seeds import resume_seeds, train_seeds

pytestmark = pytest.mark.end_to_end

TINY = ["--epochs", "2", "--model.depth", "1", "--model.embed-dim", "16", "--batch-size", "256", "--device", "cpu"]


def weights(run):
    return (run / "model.safetensors").read_bytes()


@pytest.fixture(scope="module")
def config():
    digits = preset("digits")
    model = replace(digits.model, depth=1, embed_dim=16)
    return replace(digits, model=model, epochs=2, batch_size=256, device="cpu", threads=1)


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


def test_a_killed_training_is_resumed_as_a_whole_bit_for_bit(tmp_path):
    command = [sys.executable, "-m", "tinyvit", "train"]
    options = ["digits", *TINY, "--threads", "1", "--epochs", "8", "--save-minutes", "0.001", "--seeds", "1", "2"]
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    subprocess.run([*command, *options, "--out", whole], check=True, capture_output=True, timeout=60)
    process = subprocess.Popen([*command, *options, "--out", killed], stdout=subprocess.DEVNULL)
    ends = time.monotonic() + 60
    while not list(killed.glob("seed-2/checkpoints/step-*.json")) and time.monotonic() < ends:
        time.sleep(0.005)
    process.kill()
    assert process.wait() == -9 and not (killed / "summary.json").exists()
    resumed = subprocess.run([*command, "--resume", killed], capture_output=True, text=True, timeout=60)
    assert (resumed.returncode, resumed.stderr) == (0, "")
    for seed in (1, 2):
        assert weights(killed / f"seed-{seed}") == weights(whole / f"seed-{seed}")
    scores = [json.loads((path / "summary.json").read_text())["scores"] for path in (whole, killed)]
    assert scores[0] == scores[1]


def test_ctrl_c_ends_the_whole_and_says_how_to_go_on(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-m", "tinyvit", "train", "digits", *TINY, "--epochs", "1000", "--seeds", "1", "2",
         "--out", tmp_path / "runs"], stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    while "test acc." not in process.stdout.readline():
        pass
    process.send_signal(2)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert out.endswith(f"go on with all seeds: tinyvit train --resume {tmp_path / 'runs'}\n")
    assert not (tmp_path / "runs" / "seed-2").exists()


def test_refused_changes_are_not_noted_and_accepted_ones_are(config, tmp_path):
    path = tmp_path / "both"
    with pytest.raises(KeyboardInterrupt):
        train_seeds(replace(config, save_minutes=0.0), (3, 5), path, StopsAfter(4))
    before = (path / "seeds.json").read_bytes()
    with pytest.raises(ValueError, match="holds weights in float32, and the training is to go on in float64"):
        resume_seeds(path, precision="float64")
    assert (path / "seeds.json").read_bytes() == before
    resume_seeds(path, threads=2)
    assert json.loads((path / "seeds.json").read_text())["config"]["threads"] == 2
    done = (path / "seeds.json").read_bytes()
    resume_seeds(path, precision="float64")
    assert (path / "seeds.json").read_bytes() == done, "nothing is left that the change could be for"


def test_a_folder_of_several_runs_is_not_taken_for_one(config, folder):
    with pytest.raises(ValueError, match="holds a run for each of several seeds; name one of them"):
        RunFolder(folder).read_config()
    with pytest.raises(ValueError, match="already holds a run"):
        train(config, folder)
    with pytest.raises(ValueError, match="already holds a run"):
        train_seeds(config, (1,), folder)


def test_a_training_in_use_or_a_damaged_list_of_seeds_is_refused(config, folder, tmp_path):
    with RunFolder(folder).locked(), pytest.raises(ValueError, match="in use by another training"):
        resume_seeds(folder)
    for content in (b"", b"[]", b'{"seeds": [1]}', b'{"seeds": [1, 1], "config": {}}', b'{"seeds": [1], "config": {}}'):
        (tmp_path / "seeds.json").write_bytes(content)
        with pytest.raises(ValueError, match="seeds.json"):
            resume_seeds(tmp_path)
