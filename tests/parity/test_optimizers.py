"""A hundred float64 steps of every optimizer, beside PyTorch's on the same gradients."""

import numpy as np
import pytest
import torch
from torch_autograd import normal, tensor
from torch_vit import decaying_as_ours, redrawn_vit

from tinyvit import ViTConfig, nn, optim

pytestmark = pytest.mark.parity

STEPS = 100
BOUND = 1e-12  # largest |ours − theirs| / max(1, |theirs|)
CONFIG = ViTConfig(img_size=8, patch_size=4, num_classes=5, embed_dim=12, depth=2, num_heads=3)

OPTIMIZERS = {
    "SGD": (optim.SGD, torch.optim.SGD, {}),
    "SGD, weight decay": (optim.SGD, torch.optim.SGD, {"weight_decay": 0.3}),
    "SGD, momentum": (optim.SGD, torch.optim.SGD, {"momentum": 0.9, "weight_decay": 0.3}),
    "SGD, Nesterov": (optim.SGD, torch.optim.SGD, {"momentum": 0.9, "nesterov": True, "weight_decay": 0.3}),
    "Adagrad": (optim.Adagrad, torch.optim.Adagrad, {}),
    "Adagrad, weight decay": (optim.Adagrad, torch.optim.Adagrad, {"eps": 1e-3, "weight_decay": 0.3}),
    "Adam": (optim.Adam, torch.optim.Adam, {}),
    "Adam, other betas": (optim.Adam, torch.optim.Adam, {"betas": (0.8, 0.95), "eps": 1e-3}),
    "AdamW": (optim.AdamW, torch.optim.AdamW, {}),
    "AdamW, no weight decay": (optim.AdamW, torch.optim.AdamW, {"weight_decay": 0.0}),
    "AdamW, other betas": (optim.AdamW, torch.optim.AdamW, {"betas": (0.8, 0.95), "eps": 1e-3, "weight_decay": 0.3}),
}
MODELS = {
    "vit": lambda: redrawn_vit(CONFIG),
    "more than a chunk": lambda: nn.Linear(190, 180).materialize(seed=1, dtype="float64"),
}


def rate(step):
    """A learning rate that goes up and down, and once to nothing."""
    return 0.05 * (1 + np.cos(0.3 * step)) * (step != 50)


def gradients(step, model):
    """The same for both, of sizes that differ by orders of magnitude from parameter to parameter."""
    return [10.0 ** (i % 7 - 4) * normal((step, i), p.shape) for i, p in enumerate(model.parameters())]


def take_steps(model, optimizer, twins, torch_optimizer):
    """A hundred steps of both on the same gradients, the learning rate set before each."""
    shares = [group["lr"] for group in torch_optimizer.param_groups]
    for step in range(STEPS):
        for parameter, twin, gradient in zip(model.parameters(), twins, gradients(step, model)):
            parameter.grad = gradient
            twin.grad = torch.tensor(gradient)
        optimizer.lr = rate(step)
        for group, share in zip(torch_optimizer.param_groups, shares):
            group["lr"] = share * rate(step)
        optimizer.step()
        torch_optimizer.step()


def assert_equal(model, twins):
    for parameter, twin in zip(model.parameters(), twins, strict=True):
        expected = twin.detach().numpy()
        error = (np.abs(parameter.data - expected) / np.maximum(1, np.abs(expected))).max()
        assert error <= BOUND, f"{parameter.name}: {error:.1e}"


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_hundred_steps_of_every_optimizer_end_where_they_end_in_torch(name, make):
    ours, theirs, options = OPTIMIZERS[name]
    model = make()
    twins = [tensor(parameter.data) for parameter in model.parameters()]
    optimizer = ours(model, lr=1.0, **options)
    decay = getattr(optimizer, "weight_decay", 0.0)
    take_steps(model, optimizer, twins, theirs(decaying_as_ours(model, twins, decay), lr=1.0, **options))
    assert_equal(model, twins)


def test_scaled_learning_rates_and_frozen_parameters_are_torchs_parameter_groups():
    model = redrawn_vit(CONFIG)
    optim.layerwise_decay(model, 0.7)
    frozen = model.freeze("blocks.0.attn.*")
    named = [(name, p, tensor(p.data)) for name, p in model.named_parameters()]
    groups = [
        {"params": [twin], "lr": p.lr_scale, "weight_decay": 0.3 * p.decay}
        for name, p, twin in named
        if name not in frozen
    ]
    twins = [twin for _, _, twin in named]
    take_steps(model, optim.AdamW(model, weight_decay=0.3), twins, torch.optim.AdamW(groups))
    assert_equal(model, twins)
