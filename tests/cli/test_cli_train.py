"""tinyvit train, and tinyvit train --resume."""

import json
import re
import shutil

import pytest

TINY = ["--model.embed-dim", "16", "--model.depth", "1", "--batch-size", "256", "--device", "cpu"]


@pytest.fixture
def unfinished(tinyvit, tmp_path):
    """A run of two epochs that stopped after the first."""
    path = tmp_path / "unfinished"
    assert tinyvit("train", "digits", "--epochs", "1", "--out", path, *TINY)[0] == 0
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps({**config, "epochs": 2}))
    (path / "summary.json").unlink()
    return path


@pytest.mark.parametrize("form", ["--resume {}", "--resume={}", "--resume {} --threads 1", "--resume {} --device cpu"])
def test_a_run_is_resumed_without_a_preset(tinyvit, unfinished, form):
    status, out, err = tinyvit("train", *form.format(unfinished).split())
    assert (status, err) == (0, "")
    assert "going on after step 5 of 10" in out and "test accuracy" in out
    assert json.loads((unfinished / "summary.json").read_text())["epochs"] == 2


def test_a_finished_run_is_shown_and_not_trained_again(tinyvit, run):
    before = (run / "model.safetensors").stat().st_mtime_ns
    status, out, err = tinyvit("train", "--resume", run)
    assert (status, err) == (0, "") and "test accuracy" in out
    assert (run / "model.safetensors").stat().st_mtime_ns == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--resume", "--resume"),
        ("--resume=", "is not a run folder"),
        ("--resume nowhere", "nowhere is not a run folder: it doesn't exist"),
        ("--resume {} --epochs 3", "--epochs"),
        ("--resume {} --threads 0", "threads must be a positive int"),
        ("digits --resume {}", "without a preset: tinyvit train --resume RUN"),
        ("digits --out {}", r"already holds a run \(.*\).*tinyvit train --resume"),
    ],
)
def test_a_run_that_cannot_be_resumed_is_refused_and_left_unchanged(refused, unfinished, arguments, message):
    before = {file: file.read_bytes() for file in unfinished.rglob("*") if file.is_file()}
    assert re.search(message, refused("train", *arguments.format(unfinished).split()))
    assert {file: file.read_bytes() for file in unfinished.rglob("*") if file.is_file()} == before


@pytest.mark.parametrize(("options", "message"), [
    ("--threads 100000000", "expected a number of threads from 1 to 4,096, got 100000000"),
    ("--model.mlp-ratio 1e300", "needs about a billion GB or more .*: take a smaller model"),
    (f"--model.embed-dim 1{99 * '0'}", "embed_dim must be an int from 1 to 65,536, got 1000"),
])  # fmt: skip
def test_numbers_beyond_all_machines_are_refused_in_a_line_that_can_be_read(refused, tmp_path, options, message):
    line = refused("train", "digits", "--out", tmp_path / "run", *options.split())
    assert re.search(message, line) and len(line) < 400
    assert not (tmp_path / "run").exists()


def test_a_folder_in_use_is_refused(refused, unfinished):
    from tinyvit.training.run_folder import RunFolder

    with RunFolder(unfinished).locked():
        assert "in use by another training" in refused("train", "--resume", unfinished)


def test_a_run_whose_configuration_is_damaged_is_refused(refused, unfinished):
    (unfinished / "config.json").write_text("{")
    assert "config.json is not a tinyvit configuration" in refused("train", "--resume", unfinished)


def test_a_run_killed_before_its_configuration_was_written_starts_afresh(tinyvit, tmp_path):
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    (tmp_path / "run" / ".lock").touch()
    assert tinyvit("train", "digits", "--epochs", "1", "--out", tmp_path / "run", *TINY)[0] == 0


def test_a_run_that_was_moved_can_be_resumed(tinyvit, unfinished, tmp_path):
    shutil.move(unfinished, tmp_path / "elsewhere")
    assert tinyvit("train", "--resume", tmp_path / "elsewhere")[0] == 0


def test_a_training_that_diverges_says_which_layer_what_to_do_and_where_the_last_good_weights_are(refused, tmp_path):
    line = refused("train", "digits", "--epochs", "9", "--optim.lr", "1e18", "--optim.warmup", "0", *TINY)
    assert re.search(r"the training diverged: .*the output of .* is the first that is not.* lower optim\.lr", line)
    assert "nothing was saved yet" in line


@pytest.mark.parametrize(
    "options",
    [
        "--optim.name sgd --optim.nesterov --optim.lr 0.1 --optim.schedule one-cycle --optim.warmup 0.3",
        "--optim.name adagrad --optim.schedule constant --optim.layer-decay 0.7",
        "--optim.name adam --optim.schedule linear --optim.accumulate 2 --optim.ema 0.9",
        "--optim.name muon --optim.keep-patches 0.5 --augment.policy trivial --augment.erase 0.25",
        "--model.dynamic-img-size --optim.small-sizes 4 --optim.small-until 0.5 --augment.mixup 0.8 --augment.cutmix 1",
        "--validation 0.2 --tensorboard --evaluate-every 2",
    ],
)
def test_every_kind_of_recipe_trains(tinyvit, tmp_path, options):
    status, out, err = tinyvit("train", "digits", "--epochs", "2", "--out", tmp_path / "run", *TINY, *options.split())
    assert (status, err) == (0, "")
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    if "--validation" in options:
        assert "test_accuracy" not in summary and 0 <= summary["validation_accuracy"] <= 1
        assert "validation accuracy" in out and list((tmp_path / "run" / "tensorboard").iterdir())
        assert len((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()) == 1
    else:
        assert summary["skipped_steps"] == 0 and summary["test_loss"] < 2.5


@pytest.mark.parametrize(("options", "message"), [
    ("--seeds 1 1", "seeds must be different ints of at least 0, got 1 1"),
    ("--seeds", "seeds must be different ints of at least 0, got none"),
    ("--seeds -1", "seeds must be different ints of at least 0, got -1"),
    ("--seeds 1.5", "--seeds"),
    ("--seed 1 --seeds 2", "expected --seed for one run or --seeds for several, got both"),
    ("--seeds=3 --data-dir nowhere", "leave out --data-dir"),
])  # fmt: skip
def test_seeds_that_cannot_be_trained_are_refused_and_leave_nothing(refused, tmp_path, options, message):
    assert message in refused("train", "digits", *TINY, "--out", "runs", *options.split())
    assert not (tmp_path / "runs").exists()


def test_a_cuda_graph_is_refused_on_a_cpu(refused, tmp_path):
    said = refused("train", "digits", "--device", "cpu", "--cuda-graph", "--out", tmp_path / "run")
    assert "--cuda-graph needs a GPU" in said and not (tmp_path / "run").exists()


def test_nccl_is_refused_on_a_cpu(refused, tmp_path):
    said = refused("train", "digits", "--device", "cpu", "--distributed", "nccl", "--out", tmp_path / "run")
    assert "--distributed nccl needs a GPU for each rank" in said and not (tmp_path / "run").exists()
