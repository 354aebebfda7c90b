"""A training that was stopped and resumed ends bit for bit as if it had not been stopped."""

import json
import shutil
from dataclasses import replace

import pytest
from steps import Killed, StopsAfter, outcome

from tinyvit.models import FactorisedViViTConfig, ResNetConfig
from tinyvit.tensors import load_tensors
from tinyvit.training import PRESETS, AugmentConfig, OptimConfig, resume, train, trainer
from tinyvit.training.checkpoints import Checkpoints
from tinyvit.training.display import Display
from tinyvit.training.trainer import load_split

pytestmark = pytest.mark.end_to_end

# 1,437 images in batches of 256: 5 steps an epoch.
CONFIG = replace(
    PRESETS["digits"],
    model=replace(PRESETS["digits"].model, embed_dim=16, depth=1, drop_rate=0.1, drop_path_rate=0.1),
    epochs=3,
    batch_size=256,
    threads=2,
    device="cpu",
    save_minutes=0.0,
    optim=OptimConfig(lr=5e-3, ema=0.9, keep_patches=0.5, accumulate=2, label_smoothing=0.1),
    augment=AugmentConfig(crop=1, mixup=0.2),
)
VARIANTS = {
    "adamw": CONFIG,
    "muon": replace(
        CONFIG,
        model=replace(CONFIG.model, dynamic_img_size=True),
        optim=replace(
            CONFIG.optim, name="muon", lr=0.02, schedule="linear", ema=None, keep_patches=1.0,
            small_sizes=(4,), small_until=(0.5,),
        ),
    ),
    "batch norm": replace(
        CONFIG,
        architecture="resnet",
        model=ResNetConfig(img_size=8, in_chans=1, depths=(1, 1), width=4),
        optim=replace(CONFIG.optim, keep_patches=1.0, accumulate=1),
    ),
    "video": replace(
        CONFIG,
        dataset="moving-digits",
        architecture="factorised_vivit",
        model=FactorisedViViTConfig(
            img_size=16, patch_size=8, in_chans=1, num_classes=8, frames=4, embed_dim=8, depth=1, temporal_depth=1,
            num_heads=2, drop_rate=0.1, drop_path_rate=0.1,
        ),
        images=1280,
        optim=replace(CONFIG.optim, keep_patches=1.0),
    ),
    "sgd": replace(CONFIG, evaluate_every=2, optim=replace(CONFIG.optim, name="sgd", nesterov=True)),
}
STEPS = 15


@pytest.fixture(scope="module", params=VARIANTS)
def trained(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("uninterrupted") / "run"
    train(VARIANTS[request.param], path)
    return VARIANTS[request.param], path, outcome(path)


@pytest.fixture
def uninterrupted(trained):
    config, _, expected = trained
    return config, expected


@pytest.mark.parametrize("steps", [1, 4, 5, 6, 9, 14, 15])
def test_a_run_killed_after_any_step_ends_as_if_it_had_not_been(uninterrupted, tmp_path, steps):
    config, expected = uninterrupted
    with pytest.raises(Killed):
        train(config, tmp_path / "run", StopsAfter(steps, Killed))
    resume(tmp_path / "run")
    assert outcome(tmp_path / "run") == expected


def test_a_run_killed_again_and_again_ends_as_if_it_had_not_been(uninterrupted, tmp_path):
    config, expected = uninterrupted
    with pytest.raises(Killed):
        train(config, tmp_path / "run", StopsAfter(2, Killed))
    for steps in (3, 1, 2, 4):
        with pytest.raises(Killed):
            resume(tmp_path / "run", StopsAfter(steps, Killed))
    resume(tmp_path / "run")
    assert outcome(tmp_path / "run") == expected


def test_a_kill_loses_only_the_minutes_since_the_last_checkpoint(tmp_path):
    config = replace(CONFIG, save_minutes=1e9)
    with pytest.raises(Killed):
        train(config, tmp_path / "run", StopsAfter(12, Killed))
    (newest, before) = sorted((tmp_path / "run" / "checkpoints").glob("step-*.json"), reverse=True)
    assert (newest.stem, before.stem) == ("step-00000010-epoch-2", "step-00000005-epoch-1")


def test_a_run_without_a_checkpoint_starts_afresh(uninterrupted, tmp_path):
    config, expected = uninterrupted
    with pytest.raises(Killed):
        train(replace(config, save_minutes=1e9), tmp_path / "run", StopsAfter(3, Killed))
    assert not any((tmp_path / "run" / "checkpoints").iterdir())
    resume(tmp_path / "run", save_minutes=0.0)
    assert outcome(tmp_path / "run") == expected


@pytest.fixture
def stopped(tmp_path):
    """A run that was killed in its second epoch."""
    with pytest.raises(Killed):
        train(CONFIG, tmp_path / "stopped", StopsAfter(8, Killed))
    return tmp_path / "stopped"


def test_a_damaged_newest_checkpoint_is_reported_and_the_one_before_is_used(stopped, tmp_path, capsys):
    train(CONFIG, tmp_path / "whole")
    newest = max((stopped / "checkpoints").glob("step-*.safetensors"))
    content = bytearray(newest.read_bytes())
    content[len(content) // 2] ^= 1
    newest.write_bytes(content)
    resume(stopped)
    assert f"tinyvit: warning: {newest} is damaged" in capsys.readouterr().err
    assert outcome(stopped) == outcome(tmp_path / "whole")


def test_a_run_whose_checkpoints_are_all_damaged_is_refused_and_stays(stopped):
    for file in (stopped / "checkpoints").glob("step-*.safetensors"):
        file.write_bytes(file.read_bytes()[:-1])
    before = {file: file.read_bytes() for file in stopped.rglob("*") if file.is_file()}
    with pytest.raises(ValueError, match="no checkpoint in .* is whole"):
        resume(stopped)
    assert {file: file.read_bytes() for file in stopped.rglob("*") if file.is_file()} == before


@pytest.mark.parametrize("change", [
    {"epochs": 1}, {"batch_size": 100}, {"optim": replace(CONFIG.optim, ema=None)},
    {"optim": replace(CONFIG.optim, name="sgd")}, {"model": replace(CONFIG.model, depth=2)},
])  # fmt: skip
def test_a_checkpoint_of_another_configuration_is_refused(stopped, change):
    with pytest.raises(ValueError, match="checkpoint|state|expected|missing"):
        resume(stopped, **change)


def test_a_checkpoint_of_another_version_is_refused_with_the_missing_names(stopped):
    checkpoints = Checkpoints(stopped / "checkpoints")
    about, tensors = checkpoints.newest(print)
    del about["data"], about["files"], tensors["epoch.sums"]
    checkpoints.save(10**6, 9, tensors, about)
    with pytest.raises(ValueError, match="another version of tinyvit: it lacks data, epoch.sums"):
        resume(stopped)


def test_a_checkpoint_whose_flat_arrays_have_another_order_is_refused(stopped):
    checkpoints = Checkpoints(stopped / "checkpoints")
    about, tensors = checkpoints.newest(print)
    del about["files"]
    about["layout"] = about["layout"][::-1]
    checkpoints.save(10**6, 9, tensors, about)
    with pytest.raises(ValueError, match="its flat arrays have another order"):
        resume(stopped)


def test_a_finished_run_is_left_unchanged(tmp_path, capsys):
    summary = train(CONFIG, tmp_path / "run")
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


@pytest.mark.parametrize("missing", ["summary.json", "model.safetensors", "model.json", "metrics.jsonl", "curves.png"])
def test_a_run_killed_at_its_very_end_is_finished(trained, tmp_path, missing):
    _, path, expected = trained
    shutil.copytree(path, tmp_path / "run")
    (tmp_path / "run" / "summary.json").unlink()
    (tmp_path / "run" / missing).unlink(missing_ok=True)
    resume(tmp_path / "run")
    assert outcome(tmp_path / "run") == expected
    assert (tmp_path / "run" / missing).exists()


@pytest.mark.parametrize("content", ["[]", "{}", "5", "null", '"x"', "{", '{"skipped_steps": 0}', "[" * 100_000])
def test_a_damaged_summary_is_written_again(tmp_path, content):
    train(replace(CONFIG, epochs=1), tmp_path / "run")
    before = json.loads((tmp_path / "run" / "summary.json").read_text())
    (tmp_path / "run" / "summary.json").write_text(content)
    assert resume(tmp_path / "run")["test_loss"] == before["test_loss"]


@pytest.mark.parametrize("damage", [None, b"", b"x" * 100])
def test_missing_or_damaged_final_weights_are_restored_from_the_checkpoint(tmp_path, damage):
    train(replace(CONFIG, epochs=1), tmp_path / "run")
    weights = tmp_path / "run" / "model.safetensors"
    before = weights.read_bytes()
    weights.unlink()
    if damage is not None:
        weights.write_bytes(damage)
    resume(tmp_path / "run")
    assert weights.read_bytes() == before


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


def test_the_time_of_all_parts_adds_up(stopped):
    before = json.loads(max((stopped / "checkpoints").glob("step-*.json")).read_text())["seconds"]
    assert resume(stopped)["seconds"] > before > 0


def test_the_wait_for_data_is_that_of_all_parts(stopped):
    checkpoints = Checkpoints(stopped / "checkpoints")
    about, tensors = checkpoints.newest(print)
    assert all(seconds > 0 for seconds in about["data_wait"]["training"])
    del about["files"]
    newest = checkpoints.manifests()[0]
    newest.unlink()
    checkpoints.write(newest.stem, tensors, about | {"data_wait": {"epoch": [1e9, 1e9], "training": [3e9, 1e9]}})
    assert resume(stopped)["data_wait"] == pytest.approx(0.75, abs=1e-3)


def test_a_resumed_run_says_where_it_goes_on_and_repeats_the_rows_so_far(stopped, capsys):
    capsys.readouterr()
    resume(stopped)
    out = capsys.readouterr().out
    assert "going on after step 8 of 15" in out or "going on after step 7 of 15" in out
    assert [line.split()[0] for line in out.splitlines() if line.startswith("      ")] == ["1", "2", "3"]


def test_the_best_weights_are_those_of_the_best_row(tmp_path):
    train(CONFIG, tmp_path / "run")
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    best = max(rows, key=lambda row: (row["test_accuracy"], row["step"]))
    (found,) = (tmp_path / "run" / "checkpoints").glob("best-*.safetensors")
    assert found.stem == f"best-{best['step']:08d}"
    final = load_tensors(tmp_path / "run" / "model.safetensors")
    assert load_tensors(found).keys() == final.keys()


def test_a_folder_that_is_removed_while_training_ends_it_with_a_clear_message(tmp_path):
    class Removing(Display):
        def step(self, *arguments):
            super().step(*arguments)
            shutil.rmtree(tmp_path / "run")

    with pytest.raises(ValueError, match="was removed, moved or replaced while this training was writing to it"):
        train(CONFIG, tmp_path / "run", Removing())
