"""A training step leaves out the gradient of the images, and nothing else."""

from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
from steps import advance
from strategies import redrawn
from tiny_architecture import TinyConfig

from tinyvit import Context, Key, ViTConfig, nn, optim
from tinyvit.models import (
    BiTConfig,
    CoAtNetConfig,
    DeiTConfig,
    FactorisedViViTConfig,
    HybridConfig,
    ResNetConfig,
    SwinConfig,
    ViViTConfig,
    architecture_name,
    build,
)
from tinyvit.models.architecture import Architecture
from tinyvit.training import PRESETS, train_step
from tinyvit.training.tasks import task_class
from tinyvit.training.trainer import Trainer

COMMON = dict(img_size=8, in_chans=2, num_classes=3)
TOKENS = dict(**COMMON, patch_size=4, embed_dim=8, depth=2, num_heads=2)
VIDEO = dict(**TOKENS, frames=4, tubelet_frames=2)
CONFIGS = [
    ViTConfig(**TOKENS), DeiTConfig(**TOKENS), ViViTConfig(**VIDEO), FactorisedViViTConfig(**VIDEO, temporal_depth=1),
    SwinConfig(**COMMON, patch_size=2, embed_dim=8, depths=(1, 1), num_heads=(1, 2), window_size=2),
    ResNetConfig(**COMMON, depths=(1,), width=4), ResNetConfig(**COMMON, depths=(1,), width=4, stem="conv7"),
    BiTConfig(**COMMON, depths=(1,), width=4, num_groups=2),
    BiTConfig(**COMMON, depths=(1,), width=4, num_groups=2, stem="conv7", padding="same"),
    CoAtNetConfig(**COMMON, stem_width=4, stages="C", depths=(1,), widths=(4,), strides=(1,)),
    HybridConfig(**TOKENS, backbone_width=4), HybridConfig(**TOKENS, backbone="bit", backbone_width=32),
]  # fmt: skip
configs = pytest.mark.parametrize("config", CONFIGS, ids=lambda config: architecture_name(config))


class Squared:
    """An objective, the mean square of the logits, that keeps what the model's backward returns."""

    def __init__(self):
        self.returned = []

    def __call__(self, model, images, targets, ctx):
        logits, cache = model(images, ctx)

        def backward(dloss):
            self.returned.append(model.backward((2 * dloss / len(logits)) * logits, cache))

        return (logits**2).sum(1).mean(), backward, {}, nn.buffer_updates(cache)


def batch(model, count=4):
    return np.random.default_rng(1).standard_normal((count, *model.image_shape), "float32"), np.zeros(count, int)


def step(config, threads=1):
    """The result of the backward in a training step, the gradients, and the weights after the step."""
    model, objective = redrawn(build(config)), Squared()
    ctx = Context(training=True, key=Key(0, step=0))
    train_step(model, optim.SGD(model, 0.1), *batch(model), ctx, objective=objective, threads=threads)
    return objective.returned, model.storage.grad.copy(), model.storage.data.copy()


@configs
def test_a_step_has_no_gradient_of_the_images_and_every_other_bit_for_bit(config):
    returned, *arrays = step(config)
    assert returned == [None]
    with mock.patch.object(Architecture, "image_layer", None):
        (dimages,), *expected = step(config)
    assert dimages.shape == (4, *build(config, device="meta").image_shape)
    for got, want in zip(arrays, expected, strict=True):
        np.testing.assert_array_equal(got, want)


def test_no_thread_makes_the_gradient_of_its_images():
    returned, *_ = step(CONFIGS[0], threads=2)
    assert returned and set(returned) == {None}


@configs
def test_a_backward_outside_of_a_step_returns_the_gradient_of_the_images(config):
    model = redrawn(build(config))
    images, _ = batch(model)
    logits, cache = model(images)
    with model.gradients_into(model.new_gradients()):
        inside = model.backward(logits, cache)
    np.testing.assert_array_equal(inside, model.backward(logits, cache))
    assert inside.shape == images.shape and inside.any()


def test_an_objective_gets_the_gradient_of_the_images_into_gradients_of_its_own():
    model, found = redrawn(build(CONFIGS[0])), []

    def adversarial(model, images, targets, ctx):
        logits, cache = model(images, ctx)
        with model.gradients_into(model.new_gradients()):
            found.append(model.backward(logits, cache))
        return Squared()(model, images + 0.1 * np.sign(found[0]), targets, ctx)

    images, targets = batch(model)
    logits, cache = model(images)
    expected = model.backward(logits, cache)
    train_step(model, optim.SGD(model, 0.1), images, targets, objective=adversarial, threads=1)
    np.testing.assert_array_equal(found[0], expected)


def test_an_architecture_that_does_not_say_which_layer_reads_its_images_keeps_their_gradient():
    (dimages,), *_ = step(TinyConfig(num_classes=3))
    assert dimages.shape == (4, 1, 8, 8)


VIT = ViTConfig(img_size=8, patch_size=4, in_chans=1, embed_dim=8, depth=1, num_heads=2, dynamic_img_size=True)
DIGITS = replace(PRESETS["digits"], model=VIT)
TASKS = {
    "classification": DIGITS, "half of the patches": replace(DIGITS, optim=replace(DIGITS.optim, keep_patches=0.5)),
    **{task: replace(DIGITS, task=task, objective=task_class(task).options(), optim=replace(DIGITS.optim, ema=None))
       for task in ("mae", "masked-patches", "dino")},
}  # fmt: skip
TASKS |= {name: PRESETS[name] for name in ("clip-digits", "dit-digits", "segment-digits")}


def trained(config):
    """The weights after a step."""
    trainer = Trainer(replace(config, batch_size=16, device="cpu", threads=1))
    advance(trainer, next(trainer.batches()))
    return trainer.model.storage.data


@pytest.mark.parametrize("name", TASKS)
def test_no_task_needs_the_gradient_of_its_images(name):
    weights = trained(TASKS[name])
    with mock.patch.object(Architecture, "image_layer", None):
        np.testing.assert_array_equal(trained(TASKS[name]), weights)
