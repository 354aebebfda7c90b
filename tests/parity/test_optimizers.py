"""A hundred float64 steps of every optimizer against PyTorch's on the same gradients."""

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
    """A learning rate that rises and falls, and is zero once."""
    return 0.05 * (1 + np.cos(0.3 * step)) * (step != 50)


def gradients(step, model):
    """Gradients whose scales differ by orders of magnitude between parameters."""
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


def assert_same(arrays, twins):
    for i, (array, twin) in enumerate(zip(arrays, twins, strict=True)):
        expected = twin.detach().numpy()
        error = (np.abs(array - expected) / np.maximum(1, np.abs(expected))).max()
        assert error <= BOUND, f"array {i} {array.shape}: {error:.1e}"


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_hundred_steps_of_every_optimizer_end_where_they_end_in_torch(name, make):
    ours, theirs, options = OPTIMIZERS[name]
    model = make()
    twins = [tensor(parameter.data) for parameter in model.parameters()]
    optimizer = ours(model, lr=1.0, **options)
    decay = getattr(optimizer, "weight_decay", 0.0)
    take_steps(model, optimizer, twins, theirs(decaying_as_ours(model, twins, decay), lr=1.0, **options))
    assert_same([p.data for p in model.parameters()], twins)


class TorchMuon:
    """Jordan et al. 2024 matrix by matrix, as PyTorch's own Muon does it, which rounds to bfloat16 on the way."""

    def __init__(self, matrices, lr, nesterov, weight_decay):
        self.matrices, self.lr, self.nesterov, self.weight_decay = matrices, lr, nesterov, weight_decay
        self.momenta = [torch.zeros_like(matrix) for matrix in matrices]

    @torch.no_grad()
    def step(self, gradients):
        for matrix, momentum, gradient in zip(self.matrices, self.momenta, gradients, strict=True):
            momentum.lerp_(gradient, 1 - 0.95)
            update = gradient.lerp(momentum, 0.95) if self.nesterov else momentum
            matrix.mul_(1 - self.lr * self.weight_decay)
            matrix.add_(self.orthogonal(update), alpha=-self.lr * max(1, len(matrix) / len(matrix.T)) ** 0.5)

    def orthogonal(self, x):
        if len(x) > len(x.T):
            return self.orthogonal(x.T).T
        x = x / (x.norm() + 1e-7)
        for _ in range(5):
            gram = x @ x.T
            x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
        return x


@pytest.mark.parametrize("nesterov", [True, False])
def test_a_hundred_steps_of_muon_end_where_they_end_in_torch(nesterov):
    # The iterations enlarge what was rounded away by at most 3.4445⁵ = 485: a step at a rate of 0.1 adds some
    # 0.1 · 485 · 1e-16 = 5e-15 to the difference, a hundred of them, their gradients given, 5e-13. The bound holds.
    model = redrawn_vit(CONFIG)
    matrices = {name: p for name, p in model.named_parameters() if name.startswith("blocks.") and p.ndim == 2}
    rest = [p for name, p in model.named_parameters() if name not in matrices]
    split = {name: 3 if "qkv" in name else 1 for name in matrices}
    theirs = [tensor(part) for name, p in matrices.items() for part in np.split(p.data, split[name])]
    twins = [tensor(p.data) for p in rest]
    groups = [{"params": [twin], "weight_decay": 0.3 * p.decay} for p, twin in zip(rest, twins)]
    optimizer = optim.Muon(model, lr=1.0, nesterov=nesterov, weight_decay=0.3, adam_lr=0.25)
    torch_muon = TorchMuon(theirs, 1.0, nesterov, 0.3)
    torch_adamw = torch.optim.AdamW(groups, betas=(0.9, 0.95))
    for step in range(STEPS):
        for parameter, gradient in zip(model.parameters(), gradients(step, model)):
            parameter.grad = gradient
        for parameter, twin in zip(rest, twins):
            twin.grad = torch.tensor(parameter.grad)
        optimizer.lr = torch_muon.lr = rate(step)
        for group in torch_adamw.param_groups:
            group["lr"] = 0.25 * rate(step)
        optimizer.step()
        torch_muon.step([torch.tensor(g) for name, p in matrices.items() for g in np.split(p.grad, split[name])])
        torch_adamw.step()
    assert_same([p.data for p in rest], twins)
    assert_same([part for name, p in matrices.items() for part in np.split(p.data, split[name])], theirs)


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
    assert_same([p.data for p in model.parameters()], twins)
