"""The task dino: a student, and a teacher that is its moving average."""

from dataclasses import replace

import numpy as np
import pytest
from steps import advance
from strategies import redrawn
from task_gradients import assert_gradient_is_that_of_the_complex_step

from tinyvit import Key
from tinyvit import functional as F
from tinyvit.cli import main
from tinyvit.data import load
from tinyvit.models import ViTConfig
from tinyvit.models.resnet import ResNetConfig
from tinyvit.nn import Context
from tinyvit.training import PRESETS, OptimConfig, TrainConfig, train
from tinyvit.training.config import switch
from tinyvit.training.display import Display
from tinyvit.training.finetune import finetune_config
from tinyvit.training.tasks import task_class
from tinyvit.training.tasks.dino import DinoOptions, half_cosine
from tinyvit.training.trained import load_trained
from tinyvit.training.trainer import Trainer

VIT = ViTConfig(img_size=8, patch_size=2, in_chans=1, num_classes=10, embed_dim=16, depth=1, num_heads=2,
                positions="sincos_2d", dynamic_img_size=True)  # fmt: skip
OPTIONS = DinoOptions(small_crops=2, prototypes=24, hidden=12, bottleneck=8, frozen_last=0.1)


def configured(**changes):
    common = dict(model=VIT, objective=OPTIONS, epochs=2, batch_size=128, device="cpu", threads=1,
                  optim=OptimConfig(lr=3e-3, weight_decay=0.04, clip_norm=None, clip_each=3.0))  # fmt: skip
    return TrainConfig("digits", task="dino", **common | changes)


def begun(**changes):
    """The task, with a random student and another teacher in float64, and its batch of four images."""
    config = configured(**changes)
    task, digits = task_class("dino")(config), load("digits").train
    model = task.build(device="cpu", precision="float64")
    task.begin(model, 10, digits)
    redrawn(model)
    model.centre.data = np.random.default_rng(5).standard_normal(24) / 10
    return task, model, task.batch(digits.normalise(digits.images[:4], "float64"), None, Key(0, 3))


def test_the_gradient_of_the_loss_is_that_of_the_complex_step():
    task, model, batch = begun()
    constants = model.targets(batch["large"], task.teacher_temperature)

    def with_constants(exact):
        exact.targets = lambda *given: constants

    assert_gradient_is_that_of_the_complex_step(task, model, batch, "student.", with_constants)
    assert not any(parameter.grad.any() for parameter in model.teacher.parameters())


def test_the_teacher_is_centred_sharpened_and_sees_the_large_crops_alone():
    task, model, batch = begun()
    targets, logits = model.targets(batch["large"], 0.04)
    alone, _ = model.teacher([batch["large"][:, 1:]])
    np.testing.assert_allclose(logits[:, 1:], alone, rtol=1e-12)
    np.testing.assert_allclose(targets, F.softmax((logits - model.centre.data) / 0.04)[0], rtol=1e-12)
    assert batch["large"].shape == (4, 2, 1, 8, 8) and batch["small"].shape == (4, 2, 1, 4, 4)
    student, _ = model.student(list(batch.values()))
    assert student.shape == (4, 4, 24) and abs(student).max() <= 1 + 1e-9, "cosines"
    loss, _, metrics, _ = task.loss(model, batch, None)
    np.testing.assert_allclose(loss, F.dino_loss(student, targets, 0.1)[0], rtol=1e-12)
    np.testing.assert_allclose(metrics["entropy"], -(targets * np.log(targets)).sum(-1).mean() / np.log(24))


def test_every_image_has_views_of_its_own_that_depend_on_the_step_alone():
    task, _, _ = begun()
    images = np.repeat(load("digits").train.normalise(load("digits").train.images[:1], "float64"), 3, axis=0)
    first, again, other = (task.batch(images, None, key) for key in (Key(0, 3), Key(0, 3), Key(0, 4)))
    for name, views in first.items():
        np.testing.assert_array_equal(views, again[name])
        seen = [view.tobytes() for view in [*views.reshape(-1, *views.shape[2:]), *other[name][0]]]
        assert len(set(seen)) == len(seen), name


def test_teacher_and_centre_move_as_the_schedules_say_and_stay_where_a_step_is_skipped():
    trainer = Trainer(configured())
    batches = list(trainer.batches())
    model, task = trainer.model, trainer.task
    for theirs, own in model.pairs():
        np.testing.assert_array_equal(theirs.data, own.data)
    total = trainer.total_steps
    for step in range(3):
        teacher, centre = model.teacher.state_dict(), model.centre.data.copy()
        batch = trainer.next_step(*batches[step])
        last = model.student.head.last.weight
        assert last.trainable == (step >= 0.1 * total)
        assert trainer.optimizer.weight_decay == half_cosine(0.04, 0.4, step, total)
        _, logits = model.targets(batch["images"]["large"], 0.04)
        before = last.data.copy()
        advance(trainer, batches[step])
        assert (last.data != before).any() == last.trainable
        m = half_cosine(0.996, 1, step, total)
        student = model.student.state_dict()
        for name, array in model.teacher.state_dict().items():
            np.testing.assert_allclose(array, m * teacher[name] + (1 - m) * student[name], rtol=1e-5, atol=1e-7)
        np.testing.assert_allclose(model.centre.data, 0.9 * centre + 0.1 * logits.mean((0, 1)), rtol=1e-4, atol=1e-7)
    before = model.state_dict()
    images, labels = batches[3]
    advance(trainer, (np.full_like(images, np.nan), labels))
    for name, array in model.state_dict().items():
        np.testing.assert_array_equal(array, before[name])
    assert half_cosine(0.996, 1, total, total) == 1 and task.headline == "test_knn"


@pytest.mark.parametrize("first, last", [(0.04, 0.04), (0.02, 0.07)])
def test_the_teachers_temperature_rises_in_the_warm_up(first, last):
    trainer = Trainer(configured(objective=replace(OPTIONS, teacher_temperatures=(first, last)), epochs=10))
    warmup = round(0.1 * trainer.total_steps)
    found = []
    for step in (0, warmup // 2, warmup, trainer.total_steps):
        trainer.task.before_step(trainer.model, trainer.optimizer, step)
        found.append(trainer.task.teacher_temperature)
    np.testing.assert_allclose(found, [first, first + (last - first) * (warmup // 2) / warmup, last, last])


def test_a_batch_that_is_split_over_threads_gives_the_same_step():
    vit = replace(VIT, drop_rate=0.1, drop_path_rate=0.2)
    trainers = [Trainer(configured(model=vit, threads=threads, precision="float64")) for threads in (1, 3)]
    for batch in list(trainers[0].batches())[:2]:
        results = [advance(trainer, batch) for trainer in trainers]
        np.testing.assert_allclose(results[1].loss, results[0].loss, rtol=1e-12)
    whole, split = (trainer.model.state_dict() for trainer in trainers)
    for name in whole:
        np.testing.assert_allclose(split[name], whole[name], rtol=1e-9, atol=1e-12)


def test_views_of_one_sample_are_dropped_from_differently():
    _, model, batch = begun(model=replace(VIT, drop_rate=0.5))
    same = {name: np.zeros_like(views[:, :2, :, :4, :4]) for name, views in batch.items()}
    logits, _ = model.student(list(same.values()), Context(training=True, key=Key(0, 0)))
    assert len({row.tobytes() for row in logits.reshape(-1, 24)}) == 4 * 4


@pytest.mark.end_to_end
def test_a_training_says_no_collapse_and_the_next_commands_use_the_teachers_features(tmp_path, capsys):
    options = DinoOptions(small_crops=2, scales=(0.5, 0.7, 1.0), colour=0.0, prototypes=64, hidden=64, bottleneck=32,
                          teacher_temperatures=(0.02, 0.02))  # fmt: skip
    config = configured(epochs=6, model=replace(VIT, embed_dim=32, depth=2, global_pool="avg"), objective=options)
    summary = train(replace(config, optim=replace(config.optim, lr=1e-3)), tmp_path / "run")
    assert summary["test_knn"] > 0.5
    assert "collapse" not in capsys.readouterr().err
    trained = load_trained(tmp_path / "run", "cpu")
    teacher = trained.learner.teacher.backbone
    assert trained.model is teacher and trained.learner.student.backbone is not teacher
    tuned = finetune_config(str(tmp_path / "run"), "digits", images=200, epochs=20, device="cpu",
                            optim=OptimConfig(lr=3e-3))  # fmt: skip
    assert train(tuned, tmp_path / "tuned")["test_accuracy"] > 0.1
    for command in (["knn", "--images", "200", "--json"], ["evaluate", "--json"]):
        with pytest.raises(SystemExit) as ended:
            main([command[0], str(tmp_path / "run"), "--device", "cpu", *command[1:]])
        assert ended.value.code == 0
    assert f'"test_knn": {summary["test_knn"]}' in capsys.readouterr().out


def test_weights_of_another_run_are_where_student_and_teacher_begin(tmp_path, capsys):
    train(TrainConfig("digits", VIT, epochs=1, device="cpu"), tmp_path / "first")
    config = configured()
    trainer = Trainer(replace(config, init=replace(config.init, run=str(tmp_path / "first"))))
    for one, hints in ((trainer, 0), (Trainer(config), 1)):  # that such weights would save time
        capsys.readouterr()
        Display().start(one, tmp_path)
        assert capsys.readouterr().out.count("(--init.run RUN)") == hints
    first = load_trained(tmp_path / "first", "cpu").model.state_dict()
    for part in (trainer.model.student, trainer.model.teacher):
        state = part.backbone.state_dict()
        assert all((state[name] == first[name]).all() for name in state)


@pytest.mark.end_to_end
@pytest.mark.parametrize("change, said", [
    # Without centring one prototype wins; without sharpening nothing does.
    (dict(centring=False, teacher_temperatures=(0.005, 0.005), momentum=0.5), "one prototype"),
    (dict(teacher_temperatures=(1.0, 1.0), momentum=0.9), "the uniform distribution"),
], ids=["no centre", "no sharpening"])  # fmt: skip
def test_a_collapse_that_is_forced_is_named(change, said, tmp_path, capsys):
    train(configured(objective=replace(OPTIONS, **change), epochs=4), tmp_path / "run")
    assert f"warning: collapse to {said}: the teacher says the same of every image" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["evaluate", str(tmp_path / "run"), "--device", "cpu"])
    assert f"collapse to {said}" in capsys.readouterr().out


@pytest.mark.parametrize("own, used, said", [
    (0.3, 0.9, None), (0.999, 1.0, "the uniform distribution"), (0.01, 0.02, "one prototype"), (0.97, 0.995, None),
    (0.6, 0.61, "one distribution"),
])  # fmt: skip
def test_only_a_teacher_that_says_the_same_of_all_images_is_called_collapsed(own, used, said):
    task = task_class("dino")(configured())
    found = task.warning(dict(zip(task.scores, (0.5, own, used))))
    assert found is None if said is None else said in found


@pytest.mark.parametrize("options, change, message", [
    (dict(small_side=10), {}, r"objective\.small-side must be at most the images' 8, got 10"),
    (dict(small_side=3), {}, r"objective\.small-side must be a multiple of the patches' sides \(2, 2\), got 3"),
    ({}, dict(optim=OptimConfig(small_sizes=(2,), small_until=(0.5,))), "multiple of the patches' sides .* got 1"),
    (dict(scales=(0.5, 0.4, 1.0)), {}, r"objective\.scales must be in ascending order, got \(0\.5, 0\.4, 1\.0\)"),
    (dict(temperature=0.0), {}, r"objective\.temperature must be .* got 0\.0"),
    ({}, dict(model=replace(VIT, dynamic_img_size=False)), "--model.dynamic-img-size"),
    ({}, dict(model=replace(VIT, img_size=(8, 12))), r"needs square images, got \(8, 12\)"),
    ({}, dict(optim=OptimConfig(ema=0.9)), "optim.ema must be none for the task 'dino', got 0.9"),
    ({}, dict(freeze="embed"), "freeze must be none for the task 'dino', got 'embed'"),
    ({}, dict(optim=OptimConfig(keep_patches=0.5)), "optim.keep-patches must be 1"),
    ({}, dict(model=ResNetConfig(img_size=8, in_chans=1, depths=(1,), width=4), architecture="resnet"),
     "architecture must be vit for the task 'dino', got 'resnet'"),
])  # fmt: skip
def test_what_can_not_be_trained_is_refused(options, change, message):
    with pytest.raises(ValueError, match=message):
        configured(**{"objective": replace(OPTIONS, **options)} | change)


@pytest.mark.parametrize("preset", ["digits", "cifar10", "folder"])
def test_a_preset_for_another_task_is_fitted_to_it(preset):
    config = switch(PRESETS[preset], task="dino")
    assert config.task == "dino" and config.model.dynamic_img_size and config.optim.ema is None
    assert replace(config.optim, ema=PRESETS[preset].optim.ema) == PRESETS[preset].optim
    with pytest.raises(ValueError, match="architecture must be vit for the task 'dino', got 'swin'"):
        switch(PRESETS["cifar10-swin"], task="dino")
