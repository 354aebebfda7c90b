"""The task that learns which noise was put into an image."""

import json
from dataclasses import replace

import numpy as np
import pytest
from strategies import redrawn
from task_gradients import assert_gradient_is_that_of_the_complex_step

from tinyvit import Key
from tinyvit.data import load
from tinyvit.models import DiTConfig, ViTConfig
from tinyvit.training import AugmentConfig, OptimConfig, TrainConfig, train
from tinyvit.training.tasks import task_class

SHAPE = DiTConfig(img_size=8, patch_size=4, in_chans=1, num_classes=10, embed_dim=16, depth=1, num_heads=2)


def configured(learn_sigma=False, **changes):
    common = dict(architecture="dit", task="diffusion", model=replace(SHAPE, learn_sigma=learn_sigma), mean=(0.5,),
                  std=(0.5,), epochs=2, batch_size=256, device="cpu", threads=2, save_minutes=0.0,
                  optim=OptimConfig(lr=3e-3, ema=0.9))  # fmt: skip
    return TrainConfig("digits", **common | changes)


def begun(config, B=6):
    """The task, with a random model in float64, and its batch."""
    task, digits = task_class("diffusion")(config), replace(load("digits").train, mean=(0.5,), std=(0.5,))
    model = redrawn(task.build(device="cpu", precision="float64"))
    task.begin(model, 10, digits)
    return task, model, task.batch(digits.normalise(digits.images[:B], "float64"), digits.labels[:B], Key(0, 3))


@pytest.mark.parametrize("learn_sigma", [False, True])
@pytest.mark.parametrize("first", [False, True], ids=["late", "first step"])
def test_the_gradient_of_the_loss_is_that_of_the_complex_step(learn_sigma, first):
    task, model, batch = begun(configured(learn_sigma))
    if first:
        batch["t"] = 0 * batch["t"]
    assert_gradient_is_that_of_the_complex_step(task, model, batch)
    loss, _, metrics = task.loss(model, batch, None)
    assert learn_sigma == bool(metrics) and loss == pytest.approx(sum(metrics.values()) if metrics else loss)


def test_a_learned_variance_changes_nothing_of_what_is_learned_of_the_noise():
    """With weights of 0 for the variance nothing of its loss goes beyond the last layer: all else learns as without."""
    task, model, batch = begun(configured())
    plain = model.state_dict()
    task.loss(model, batch, None)[1]()
    both, learner, _ = begun(configured(learn_sigma=True))
    wider = {name: np.concatenate([plain[name], 0 * plain[name]]) for name in plain if "final_layer.linear" in name}
    learner.load_state_dict(plain | wider)  # the variance comes behind the noise
    both.loss(learner, batch, None)[1]()
    found = dict(learner.named_parameters())
    for name, parameter in model.named_parameters():
        expected = parameter.grad
        np.testing.assert_allclose(found[name].grad[: len(expected)], expected, rtol=1e-9, atol=1e-12)
    assert found["final_layer.linear.bias"].grad[16:].any()


def test_times_and_noise_are_those_of_the_step_and_the_sample():
    task, _, batch = begun(configured(), B=50)
    assert batch["t"].min() >= 0 and batch["t"].max() < 1000 and len(set(batch["t"])) > 40
    again = task.batch(batch["images"][20:], batch["labels"][20:], Key(0, 3).skip(20))
    for name in batch:
        np.testing.assert_array_equal(again[name], batch[name][20:])
    other = task.batch(batch["images"], batch["labels"], Key(0, 4))
    assert (other["noise"] != batch["noise"]).all() and (other["t"] != batch["t"]).any()
    assert batch["noise"].std() == pytest.approx(1, abs=0.05)


@pytest.mark.end_to_end
@pytest.mark.parametrize("learn_sigma", [False, True])
def test_a_training_learns_and_reports(tmp_path, learn_sigma):
    summary = train(configured(learn_sigma), tmp_path / "run")
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert summary["task"] == "diffusion" and summary["architecture"] == "dit"
    assert summary["test_loss"] == rows[-1]["test_loss"] < rows[0]["test_loss"] < 1
    assert ("train_bits" in rows[0]) == learn_sigma


def test_the_score_is_the_mean_of_the_losses_of_each_image_alone_with_four_noises():
    config, digits = configured(), load("digits").test  # a batch of 256 and one of 104
    task, model, _ = begun(config)
    model.to("float32")
    images, losses = digits.normalise(digits.images, "float32"), []
    for i in range(len(images)):
        own = images[i : i + 1], digits.labels[i : i + 1]
        losses += [float(task.loss(model, task.batch(*own, Key(0, number).skip(i)), None)[0]) for number in range(4)]
    (score,) = task.evaluate(model, digits).values()
    np.testing.assert_allclose(score, np.mean(losses), rtol=1e-5)


@pytest.mark.parametrize("changes, message", [
    (dict(architecture="vit", model=ViTConfig(img_size=8, in_chans=1)), "architecture must be dit .* got 'vit'"),
    (dict(augment=AugmentConfig(mixup=0.2)), "augment.mixup must be 0 for the task 'diffusion', got 0.2"),
    (dict(optim=OptimConfig(keep_patches=0.5)), "optim.keep-patches must be 1 for the task 'diffusion', got 0.5"),
    (dict(optim=OptimConfig(label_smoothing=0.1)), "optim.label-smoothing must be 0 for the task 'diffusion', got 0.1"),
    (dict(task="classification", objective=None), "can't serve the task 'classification': a DiT generates images"),
])  # fmt: skip
def test_what_can_not_be_trained_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        configured(**changes)
