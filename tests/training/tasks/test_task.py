"""Properties of any task, tested with a task and an architecture that exist only in the tests."""

import io
import json
from contextlib import redirect_stdout
from dataclasses import replace

import numpy as np
import pytest
import tiny_architecture
import tiny_task
from PIL import Image
from safetensors.numpy import load_file
from steps import StopsAfter

from tinyvit.cli import main
from tinyvit.files import write_with_manifest
from tinyvit.tensors import tensor_bytes
from tinyvit.training import PRESETS, AugmentConfig, OptimConfig, TrainConfig, resume, train
from tinyvit.training.config import from_json, to_json
from tinyvit.training.tasks import task

pytestmark = pytest.mark.end_to_end

OPTIONS = [
    "digits", "--architecture", "tiny", "--task", "brightness", "--epochs", "3", "--batch-size", "128", "--device",
    "cpu", "--save-minutes", "0", "--objective.decay", "0.8", "--model.width", "8", "--optim.ema", "0.9",
]  # fmt: skip
CONFIG = TrainConfig(
    "digits", tiny_architecture.TinyConfig(width=8), "tiny", "brightness", tiny_task.BrightnessOptions(0.8),
    epochs=2, batch_size=128, device="cpu", threads=1, optim=OptimConfig(lr=1e-2), augment=AugmentConfig(crop=1),
)  # fmt: skip


def finished(*arguments):
    """The output of a command."""
    with redirect_stdout(io.StringIO()) as out, pytest.raises(SystemExit) as ended:
        main([*map(str, arguments)])
    assert ended.value.code == 0
    return out.getvalue()


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A finished run of the command line, with its output."""
    path = tmp_path_factory.mktemp("task") / "run"
    return path, finished("train", *OPTIONS, "--tensorboard", "--out", path)


def test_the_configuration_names_architecture_and_task_and_their_options(run):
    config = json.loads((run[0] / "config.json").read_text())
    assert (config["architecture"], config["task"]) == ("tiny", "brightness")
    assert config["model"]["width"] == 8 and config["model"]["img_size"] == 8 and config["objective"] == {"decay": 0.8}


def test_its_figures_are_shown_written_and_drawn_by_its_own_names(run):
    path, out = run
    assert "train gap" in out and "test gap" in out and "acc" not in out
    rows = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    summary = json.loads((path / "summary.json").read_text())
    assert summary["test_gap"] == rows[-1]["test_gap"] < rows[0]["test_gap"]
    assert all({"train_loss", "train_gap", "test_gap"} < set(row) and "test_accuracy" not in row for row in rows)
    with Image.open(path / "curves.png") as picture:
        assert picture.format == "PNG"
    events = b"".join(file.read_bytes() for file in (path / "tensorboard").iterdir())
    assert b"gap/test" in events and b"gap/train" in events


def test_evaluation_repeats_the_scores_of_the_summary(run):
    scores = json.loads(finished("evaluate", run[0], "--json"))
    summary = json.loads((run[0] / "summary.json").read_text())
    assert [scores[name] for name in ("test_gap", "parameters")] == [summary["test_gap"], summary["parameters"]]
    assert "test gap" in finished("evaluate", run[0])


class Scripted(tiny_task.Brightness):
    """A task whose evaluations return given figures, one after the other."""

    figures = (3.0, 1.0, 2.0)

    def evaluate(self, model, dataset, threads=None, stop=None):
        self.count = getattr(self, "count", -1) + 1
        return {self.headline: self.figures[self.count]}


@pytest.mark.parametrize(("higher_is_better", "best"), [(False, 2), (True, 1)])
def test_the_best_weights_are_chosen_by_its_own_headline(tmp_path, monkeypatch, higher_is_better, best):
    monkeypatch.setattr(Scripted, "higher_is_better", higher_is_better)
    monkeypatch.setitem(task.TASKS, "brightness", Scripted)
    train(replace(CONFIG, epochs=3), tmp_path / "run")
    (manifest,) = (tmp_path / "run" / "checkpoints").glob("best-*.json")
    assert json.loads(manifest.read_text())["metrics"]["epoch"] == best


def test_a_checkpoint_without_the_tasks_state_is_refused(tmp_path):
    path = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        train(replace(CONFIG, save_minutes=0.0), path, StopsAfter(4))
    manifest = sorted((path / "checkpoints").glob("step-*.json"))[-1]
    tensors, about = load_file(manifest.with_suffix(".safetensors")), json.loads(manifest.read_text())
    kept = {name: value for name, value in about.items() if name not in ("files", "sha256", "format")}
    rest = {name: array for name, array in tensors.items() if not name.startswith("task.")}
    write_with_manifest(manifest, {manifest.with_suffix(".safetensors").name: tensor_bytes(rest)}, kept)
    with pytest.raises(ValueError, match=r"it holds nothing for task\.\S+, and expected is float32"):
        resume(path)


@pytest.mark.parametrize(("change", "message"), [
    ({"architecture": "swine"}, r"config\.json is not a tinyvit configuration: unknown architecture 'swine'"),
    ({"task": "brightnes"}, r"config\.json .* unknown task 'brightnes'; did you mean brightness\?"),
    ({"architecture": None}, r"config\.json .* architecture and task must be names, got \(None, 'brightness'\)"),
    ({"task": ["brightness"]}, r"config\.json .* architecture and task must be names"),
    ({"objective": {"decay": 2.0}}, r"config\.json .* objective\.decay must be .* got 2\.0"),
    ({"objective": {"temperature": 1}}, r"config\.json .* unknown fields temperature"),
    ({"optim": {"accumulate": 2}}, r"config\.json .* optim\.accumulate must be 1 for the task 'brightness'"),
    ({"optim": {"keep_patches": 0.5}, "task": "classification", "objective": {}}, "1 for the architecture 'tiny'"),
])  # fmt: skip
def test_an_invalid_configuration_is_refused_in_one_line(change, message):
    with pytest.raises(ValueError, match=message):
        from_json(json.dumps(json.loads(to_json(CONFIG)) | change), "config.json")


def test_a_configuration_that_names_neither_is_a_vit_that_classifies():
    values = json.loads(to_json(PRESETS["digits"]))
    del values["architecture"], values["task"], values["objective"]
    assert from_json(json.dumps(values), "config.json") == PRESETS["digits"]


@pytest.mark.parametrize("arguments", [
    ("evaluate", "{run}", "--tta"), ("evaluate", "{run}", "--confusion", "a.png"), ("predict", "{run}", "{run}"),
])  # fmt: skip
def test_commands_that_need_a_classifier_are_refused_in_one_line(run, capsys, arguments):
    with pytest.raises(SystemExit) as ended:
        main([argument.format(run=run[0]) for argument in arguments])
    assert ended.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1


# -- a task with a mistake says so in one line ------------------------------------------------------------------------


def without_updates(self, model, batch, ctx):
    return tiny_task.Brightness.loss(self, model, batch, ctx)[:3]


def loss_of_every_sample(self, model, batch, ctx):
    loss, *rest = tiny_task.Brightness.loss(self, model, batch, ctx)
    return loss + np.zeros(len(batch["images"])), *rest


@pytest.mark.parametrize(("mistaken", "said"), [
    (without_updates, "model.stem update buffers in training, and the objective returned no updates"),
    (loss_of_every_sample, r"expected the loss as one number, a mean over the samples, got \("),
])  # fmt: skip
def test_a_mistaken_loss_of_a_task_is_named(tmp_path, monkeypatch, mistaken, said):
    wrong = type("Mistaken", (tiny_task.Brightness,), {"loss": mistaken, "name": "brightness"})
    monkeypatch.setitem(task.TASKS, "brightness", wrong)
    with pytest.raises(ValueError, match=said):
        train(replace(CONFIG, epochs=1, batch_size=512), tmp_path / "run")


@pytest.mark.parametrize("freeze", [None, "embed"])
def test_a_frozen_part_keeps_its_buffers(tmp_path, freeze):
    train(replace(CONFIG, epochs=1, freeze=freeze), tmp_path / "run")
    mean = load_file(tmp_path / "run" / "model.safetensors")["model.stem.running_mean"]
    assert (mean == 0).all() == (freeze == "embed")
