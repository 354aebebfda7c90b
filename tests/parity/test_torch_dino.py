"""The loss between views, vectors of length 1, and ten steps of DINO against an independent one in PyTorch."""

from dataclasses import replace
from itertools import pairwise
from math import cos, pi

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from strategies import SIZES, redrawn, seeds
from torch import nn
from torch.nn import functional as T
from torch_autograd import assert_same_as_torch, normal
from torch_vit import TorchViT

from tinyvit import Context, Key, ViTConfig, optim
from tinyvit import functional as F
from tinyvit.training import train_step
from tinyvit.training.config import OptimConfig, TrainConfig
from tinyvit.training.tasks.dino import DinoOptions, SelfDistillation

pytestmark = pytest.mark.parity

SHAPE = ViTConfig(img_size=8, patch_size=4, num_classes=5, embed_dim=16, depth=2, num_heads=2, positions="none",
                  dynamic_img_size=True)  # fmt: skip
OPTIONS = DinoOptions(small_crops=3, prototypes=11, hidden=12, bottleneck=6, momentum=0.9,
                      teacher_temperatures=(0.04, 0.07))  # fmt: skip
STEPS, SAMPLES, LR, DECAY, CLIP = 10, 4, 1e-2, 0.04, 0.02
# By SGD where the last layer is frozen at first: in PyTorch AdamW's bias correction counts the steps of the parameter,
# here those of the training.
OPTIMIZERS = {"adamw": (torch.optim.AdamW, optim.AdamW, 0.0), "sgd": (torch.optim.SGD, optim.SGD, 0.3)}


@given(shape=st.tuples(SIZES, SIZES, SIZES), seed=seeds())
def test_l2_normalise_is_normalize(shape, seed):
    x = normal(seed, shape)
    assert_same_as_torch(F.l2_normalise, lambda x: T.normalize(x, dim=-1), x)


@given(views=st.integers(2, 5), shape=st.tuples(SIZES, SIZES), seed=seeds())
def test_dino_loss_is_the_mean_over_the_pairs(views, shape, seed):
    logits = normal(seed, (shape[0], views, shape[1]))
    teacher, _ = F.softmax(normal(seed + 1, (shape[0], 2, shape[1])))

    def loss(logits):
        return dino_loss(logits.unbind(1), torch.tensor(teacher).unbind(1), 0.5)

    assert_same_as_torch(F.dino_loss, loss, logits, teacher=teacher, temperature=0.5)


def dino_loss(student, teacher, temperature):
    """The mean cross-entropy of the student's logits, a list of views, with the teacher's probabilities."""
    terms = [-(p * T.log_softmax(z / temperature, -1)).sum(-1).mean()
             for t, p in enumerate(teacher) for v, z in enumerate(student) if t != v]  # fmt: skip
    return sum(terms) / len(terms)


class TorchDino(nn.Module):
    """A backbone, and the head of the paper."""

    def __init__(self, config, o):
        super().__init__()
        self.backbone = TorchViT(config)
        self.backbone.head = nn.Identity()
        widths = config.embed_dim, o.hidden, o.hidden, o.bottleneck
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(widths))
        self.last = nn.Linear(o.bottleneck, o.prototypes, bias=False)

    def forward(self, images):
        x = self.layers[0](self.backbone(images))
        for layer in self.layers[1:]:
            x = layer(T.gelu(x))
        return T.linear(T.normalize(x, dim=-1), T.normalize(self.last.weight, dim=-1))


def renamed(state):
    """Our names of a network's arrays as the twin has them."""
    return {name.replace("head.", ""): torch.tensor(array) for name, array in state.items()}


def torch_steps(student, teacher, batches, o, weight_decay_of, make_optimizer):
    """(loss, centre) of each step; student and teacher are trained in place."""
    centre, names = torch.zeros(o.prototypes, dtype=torch.float64), dict(student.named_parameters())
    groups = [{"params": [p for name, p in names.items() if weight_decay_of[name] is decay]} for decay in (True, False)]
    optimizer = make_optimizer(groups, lr=LR, weight_decay=0.0)
    for step, (large, small) in enumerate(batches):
        progress = 0.5 * (1 + cos(pi * step / STEPS))
        optimizer.param_groups[0]["weight_decay"] = o.final_weight_decay + (DECAY - o.final_weight_decay) * progress
        tau = o.teacher_temperatures[0] + (o.teacher_temperatures[1] - o.teacher_temperatures[0]) * min(1, step / 5)
        with torch.no_grad():
            theirs = [teacher(view) for view in large]
            targets = [T.softmax((z - centre) / tau, -1) for z in theirs]
        loss = dino_loss([student(view) for view in (*large, *small)], targets, o.temperature)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        if step < o.frozen_last * STEPS:
            student.last.weight.grad = None
        for parameter in student.parameters():
            if parameter.grad is not None:
                norm = parameter.grad.norm().item()
                parameter.grad *= CLIP / max(norm, CLIP)
        optimizer.step()
        with torch.no_grad():
            m = 1 + (o.momentum - 1) * progress
            for own, mean in zip(student.parameters(), teacher.parameters(), strict=True):
                mean.mul_(m).add_((1 - m) * own)
            centre = o.centre_momentum * centre + (1 - o.centre_momentum) * torch.cat(theirs).mean(0)
        yield loss.item(), centre.numpy().copy()


@pytest.mark.parametrize("name, pool, threads", [("adamw", "token", 1), ("adamw", "avg", 2), ("sgd", "token", 2)])
def test_loss_gradients_teacher_and_centre_over_ten_steps_are_those_of_torch(name, pool, threads):
    theirs, ours, frozen_last = OPTIMIZERS[name]
    options, model_config = replace(OPTIONS, frozen_last=frozen_last), replace(SHAPE, global_pool=pool)
    config = TrainConfig("cifar10", model_config, task="dino", objective=options, precision="float64",
                         optim=OptimConfig(weight_decay=DECAY, warmup=0.5))  # fmt: skip
    task = SelfDistillation(config)
    model = redrawn(task.build(precision="float64", device="cpu"))
    model.centre.data = np.zeros(11)
    task.begin(model, STEPS, None)
    student, teacher = (TorchDino(model_config, options).double() for _ in range(2))
    for twin, network in ((student, model.student), (teacher, model.teacher)):
        twin.load_state_dict(renamed(network.state_dict()))

    large, small = normal(0, (STEPS, SAMPLES, 2, 3, 8, 8), (STEPS, SAMPLES, 3, 3, 4, 4))
    views = [[torch.tensor(views[step]).unbind(1) for views in (large, small)] for step in range(STEPS)]
    decays = {name.replace("head.", ""): p.decay for name, p in model.student.named_parameters()}

    task.teacher_temperature = OPTIONS.teacher_temperatures[0]
    loss, backward, *_ = task.loss(model, {"large": large[0], "small": small[0]}, None)
    backward()
    with torch.no_grad():
        targets = [T.softmax(teacher(view) / 0.04, -1) for view in views[0][0]]
    reference = dino_loss([student(view) for view in (*views[0][0], *views[0][1])], targets, OPTIONS.temperature)
    reference.backward()
    np.testing.assert_allclose(loss, reference.item(), rtol=1e-12)
    expected = {name: p.grad.numpy() for name, p in student.named_parameters()}
    for name, parameter in model.student.named_parameters():
        np.testing.assert_allclose(parameter.grad, expected[name.replace("head.", "")], rtol=1e-10, atol=1e-12)

    optimizer = ours(model, LR)
    for step, (loss, centre) in enumerate(torch_steps(student, teacher, views, options, decays, theirs)):
        task.before_step(model, optimizer, step)
        batch, ctx = {"large": large[step], "small": small[step]}, Context(training=True, key=Key(0))
        result = train_step(model, optimizer, batch, None, ctx, objective=task.loss, clip_each=CLIP, threads=threads)
        task.after_step(model, step, result.applied)
        np.testing.assert_allclose(result.loss, loss, rtol=1e-10)
        np.testing.assert_allclose(model.centre.data, centre, rtol=1e-10, atol=1e-12)
    for twin, network in ((student, model.student), (teacher, model.teacher)):
        for name, array in renamed(network.state_dict()).items():
            np.testing.assert_allclose(array, twin.state_dict()[name], rtol=1e-10, atol=1e-12, err_msg=name)
