"""Training, step by step, against PyTorch in float64."""

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy
from torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR, LinearLR, SequentialLR
from torch_autograd import normal
from torch_vit import decaying_as_ours, redrawn_vit, torch_twin

from tinyvit import ViTConfig, optim
from tinyvit.training import train_step

pytestmark = pytest.mark.parity

CONFIG = ViTConfig(img_size=(12, 8), patch_size=4, num_classes=7, embed_dim=24, depth=3, num_heads=4)
STEPS, SAMPLES, LR, WEIGHT_DECAY, WARMUP, FINAL = 10, 9, 0.03, 0.1, 3, 0.1
IMAGES, LABELS = normal(0, (SAMPLES, 3, 12, 8)), np.arange(SAMPLES) % CONFIG.num_classes


def our_trajectory(model, schedule, **options):
    """(loss, global gradient norm) of every step."""
    optimizer = optim.AdamW(model, weight_decay=WEIGHT_DECAY)
    for step in range(STEPS):
        optimizer.lr = LR * (optim.warmup_cosine(step, STEPS, WARMUP, FINAL) if schedule == "warmup_cosine" else 1)
        result = train_step(model, optimizer, IMAGES, LABELS, **options)
        yield result.loss, result.grad_norm


def torch_trajectory(model, schedule, clip_norm):
    """The same for the PyTorch twin of the model, with PyTorch's own optimizer and schedules."""
    twin = torch_twin(model)
    parameters = [twin.get_parameter(name) for name, _ in model.named_parameters()]
    optimizer = torch.optim.AdamW(decaying_as_ours(model, parameters, WEIGHT_DECAY), lr=LR)
    if schedule == "warmup_cosine":
        warmup = LinearLR(optimizer, start_factor=1 / WARMUP, total_iters=WARMUP - 1)
        cosine = CosineAnnealingLR(optimizer, STEPS - WARMUP, eta_min=FINAL * LR)
        scheduler = SequentialLR(optimizer, [warmup, cosine], milestones=[WARMUP])
    else:
        scheduler = LambdaLR(optimizer, lambda step: 1)
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = cross_entropy(twin(torch.tensor(IMAGES)), torch.tensor(LABELS))
        loss.backward()
        norm = torch.cat([parameter.grad.flatten() for parameter in parameters]).norm().item()
        for parameter in parameters:  # by hand, since torch.nn.utils.clip_grad_norm_ adds 1e-6 to the norm
            parameter.grad *= clip_norm / max(norm, clip_norm) if clip_norm else 1
        optimizer.step()
        scheduler.step()
        yield loss.item(), norm


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("clip_norm", [None, 0.3])
@pytest.mark.parametrize("schedule", ["constant", "warmup_cosine"])
def test_ten_steps_of_adamw_have_the_losses_and_norms_of_torch(schedule, clip_norm, threads):
    expected = np.array([*torch_trajectory(redrawn_vit(CONFIG), schedule, clip_norm)])
    losses, norms = expected.T
    assert losses[-1] < 0.75 * losses[0]
    assert clip_norm is None or norms.min() < clip_norm < norms.max()  # some steps are clipped, others not
    got = np.array([*our_trajectory(redrawn_vit(CONFIG), schedule, clip_norm=clip_norm, threads=threads)])
    np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-9)
