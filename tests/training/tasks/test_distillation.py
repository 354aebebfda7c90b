import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
from steps import StopsAfter
from strategies import redrawn

from tinyvit import functional as F
from tinyvit.cli import main
from tinyvit.data import load
from tinyvit.models import DeiTConfig, ResNetConfig, ViTConfig, build
from tinyvit.training import OptimConfig, TrainConfig, resume, train
from tinyvit.training.tasks import task_class
from tinyvit.training.tasks.distillation import DistillationOptions

pytestmark = pytest.mark.end_to_end

SHAPE = dict(img_size=8, patch_size=4, in_chans=1, num_classes=10, embed_dim=16, depth=1, num_heads=2)
TEACHER = TrainConfig(
    "digits", ResNetConfig(img_size=8, in_chans=1, depths=(1,), width=4), "resnet", epochs=2, batch_size=64,
    device="cpu", threads=1, optim=OptimConfig(lr=1e-2),
)  # fmt: skip


@pytest.fixture(scope="module")
def teacher(tmp_path_factory):
    path = tmp_path_factory.mktemp("teacher") / "run"
    train(TEACHER, path)
    return path


@pytest.fixture
def config(teacher):
    """A function that gives the configuration of a student, with changes to it."""

    def made(model=None, options=None, **changes):
        model = model or DeiTConfig(**SHAPE)
        architecture = {DeiTConfig: "deit", ViTConfig: "vit"}[type(model)]
        options = DistillationOptions(**{"teacher": str(teacher)} | (options or {}))
        common = dict(epochs=2, batch_size=128, device="cpu", threads=1, optim=OptimConfig(lr=3e-3))
        return TrainConfig("digits", model, architecture, "distillation", options, **common | changes)

    return made


def begun(config):
    """The task of a configuration, with its teacher, in float64, and a model with random weights."""
    task = task_class(config.task)(config)
    model = redrawn(build(config.model, dtype="float64", device="cpu"))
    task.begin(model, 10, load("digits").train)
    return task, model


@pytest.mark.parametrize("kind", ["hard", "soft"])
@pytest.mark.parametrize("cls", [DeiTConfig, ViTConfig])
def test_the_loss_is_that_of_the_paper_and_its_gradient_that_of_the_complex_step(kind, cls, config):
    task, model = begun(config(cls(**SHAPE), {"kind": kind, "share": 0.3, "temperature": 2.0}))
    generator = np.random.default_rng(0)
    images, theirs = generator.standard_normal((3, 1, 8, 8)), generator.standard_normal((3, 10))
    labels = np.array([1, 5, 9])
    batch = {"images": images, "targets": labels, "teacher": theirs}
    loss, backward, *_ = task.loss(model, batch, None)
    cls_logits, dist = model.logits_by_head(images)[0] if cls is DeiTConfig else (model(images)[0],) * 2
    log_q = np.log(F.softmax(cls_logits)[0])
    by_labels = -log_q[range(3), labels].mean()
    if kind == "hard":
        by_teacher = -np.log(F.softmax(dist)[0])[range(3), theirs.argmax(1)].mean()
    else:
        p, q = F.softmax(theirs / 2)[0], F.softmax(dist / 2)[0]
        by_teacher = 4 * (p * np.log(p / q)).sum() / 30
    np.testing.assert_allclose(loss, 0.7 * by_labels + 0.3 * by_teacher, rtol=1e-10)

    exact = build(model.config, dtype="complex128", device="cpu")
    exact.load_state_dict(model.state_dict())
    direction = generator.standard_normal(images.shape)
    moved, *_ = task.loss(exact, batch | {"images": images + 1e-20j * direction}, None)
    np.testing.assert_allclose((backward() * direction).sum(), moved.imag / 1e-20, rtol=1e-9)


def test_the_teacher_sees_what_the_student_sees_as_it_normalises_it(config, teacher):
    task, model = begun(config())
    digits = load("digits").train
    images = digits.normalise(digits.images[:5])
    expected = task.batch(images, None, None)["teacher"]
    other = replace(digits, mean=(0.2,), std=(0.7,))
    task.begin(model, 10, other)
    for _ in range(2):
        seen = task.batch(other.normalise(digits.images[:5]), None, None)
        np.testing.assert_allclose(seen["teacher"], expected, rtol=1e-4, atol=1e-5)
    mixed = 0.3 * images + 0.7 * images[::-1]
    task.begin(model, 10, digits)
    np.testing.assert_allclose(task.batch(mixed, None, None)["teacher"], task.teacher(mixed)[0], rtol=1e-5, atol=1e-6)


def stopped(config, path):
    with pytest.raises(KeyboardInterrupt):
        train(replace(config, save_minutes=0.0), path, StopsAfter(9))


def test_a_teacher_that_is_missing_or_another_on_resume_is_refused(config, teacher, tmp_path):
    moved = tmp_path / "teacher"
    shutil.copytree(teacher, moved)
    stopped(config(options={"teacher": str(moved)}), tmp_path / "run")
    shutil.rmtree(moved)
    with pytest.raises(ValueError, match="teacher is not a run folder: it doesn't exist"):
        resume(tmp_path / "run")
    train(replace(TEACHER, seed=1), moved)
    with pytest.raises(ValueError, match="holds other weights than those that this training began with"):
        resume(tmp_path / "run")


@pytest.mark.parametrize("change, message", [
    (dict(classes=("1", "0")), r"tells other classes apart: \['0', '1', .* and the data set has \['1', '0'\]"),
    (dict(model=DeiTConfig(**SHAPE | dict(img_size=12)), resize_images=True), None),
    (dict(options={"teacher": None}), "needs a teacher: give the folder of a trained run by --objective.teacher"),
    (dict(options={"teacher": "/nowhere"}), "/nowhere is not a run folder"),
])  # fmt: skip
def test_a_teacher_that_does_not_fit_is_refused(change, message, config, tmp_path):
    if message is None:  # a ResNet reads images of any size
        assert train(config(**change, epochs=1), tmp_path / "run")["epochs"] == 1
        return
    with pytest.raises(ValueError, match=message):
        train(config(**change), tmp_path / "run")


def test_a_teacher_for_one_size_only_is_refused_for_another(config, tmp_path):
    vit = TrainConfig("digits", ViTConfig(**SHAPE), epochs=1, batch_size=512, device="cpu", threads=1)
    train(vit, tmp_path / "vit")
    made = config(DeiTConfig(**SHAPE | dict(img_size=12)), {"teacher": str(tmp_path / "vit")}, resize_images=True)
    with pytest.raises(ValueError, match=r"can't read the student's images \(1, 12, 12\) .*expected images"):
        train(made, tmp_path / "run")


@pytest.mark.parametrize("options, message", [
    ({"share": 1.5}, r"objective\.share must be .* got 1\.5"),
    ({"temperature": 0.0}, r"objective\.temperature must be .* got 0\.0"),
    ({"kind": "warm"}, "objective.kind must be one of hard, soft, got 'warm'"),
])  # fmt: skip
def test_options_that_mean_nothing_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        DistillationOptions(**options)


def run(*arguments):
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    assert ended.value.code == 0


def test_the_command_line_trains_evaluates_and_says_what_is_wrong_in_one_line(teacher, tmp_path, capsys):
    shape = ["--architecture", "deit", "--model.embed-dim", "16", "--model.depth", "1", "--model.num-heads", "2"]
    task = ["--task", "distillation", "--epochs", "1", "--device", "cpu", "--out", str(tmp_path / "run")]
    with pytest.raises(SystemExit) as ended:
        main(["train", "digits", *shape, *task])
    assert ended.value.code == 2 and capsys.readouterr().err.count("\n") == 1
    run("train", "digits", *shape, *task, "--objective.teacher", str(teacher), "--objective.kind", "soft")
    assert "as teacher" in capsys.readouterr().out
    run("evaluate", str(tmp_path / "run"), "--json")
    assert json.loads(capsys.readouterr().out)["test_accuracy"] > 0.1
