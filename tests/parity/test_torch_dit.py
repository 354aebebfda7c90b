"""DiT, its training loss and a whole DDIM trajectory against an independent version in PyTorch, in float64."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from strategies import redrawn
from torch_dit import TorchDiT, ddim, linear_levels, load, training_loss

from tinyvit import Key, create_model
from tinyvit import functional as F
from tinyvit.data import Dataset
from tinyvit.models import DiT, DiTConfig
from tinyvit.training import TrainConfig
from tinyvit.training.sampling import sample
from tinyvit.training.tasks import task_class

pytestmark = pytest.mark.parity

SHAPE = DiTConfig(img_size=(4, 6), patch_size=2, in_chans=3, num_classes=5, embed_dim=12, depth=2, num_heads=3)
NAMES = {"S": 32_865_056, "B": 130_315_808, "L": 457_840_672, "XL": 674_834_720}


def both(config):
    """Our model with redrawn weights in float64, and PyTorch's with the same."""
    model = redrawn(DiT(config, dtype="float64"))
    theirs = TorchDiT(config).double()
    load(theirs, model.state_dict())
    return model, theirs


def close(ours, theirs):
    np.testing.assert_allclose(ours, theirs.detach().numpy(), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("letter, count", NAMES.items())
def test_the_papers_models_have_as_many_parameters_as_the_independent_ones(letter, count):
    for patch in (2, 4, 8):
        model = create_model(f"DiT-{letter}/{patch}", device="meta")
        with torch.device("meta"):
            theirs = TorchDiT(model.config)
        total = sum(parameter.numel() for parameter in theirs.parameters())
        again = create_model(f"dit_{letter.lower()}_{patch}", device="meta")
        assert model.num_parameters() == total and again.config == model.config
        assert patch > 2 or total == count
        fixed = {name for name, _ in model.named_buffers()}
        assert {name for name, _ in model.named_parameters()} | fixed == set(theirs.state_dict())


@pytest.mark.parametrize("learn_sigma", [False, True])
def test_a_training_loss_and_all_gradients_are_those_of_pytorch(learn_sigma):
    config = replace(SHAPE, learn_sigma=learn_sigma)
    model, theirs = both(config)
    random, B = np.random.default_rng(1), 8
    pixels = random.integers(0, 256, (B, 3, 4, 6)).astype("uint8")
    pixels[0, 0, 0, :2] = 0, 255  # the ends of the levels
    dataset = Dataset(pixels, random.integers(0, 5, B), tuple("abcde"), (0.5,) * 3, (0.5,) * 3)
    task = task_class("diffusion")(TrainConfig("cifar10", replace(config, img_size=8), "dit", "diffusion"))
    task.begin(model, 1, dataset)
    batch = task.batch(dataset.normalise(pixels, "float64"), dataset.labels, Key(0, 3))
    batch["t"] = np.array([0, 0, 1, 2, 40, 500, 998, 999])

    loss, backward, metrics = task.loss(model, batch, None)
    backward()
    given = [torch.tensor(batch[name]) for name in ("images", "labels", "t", "noise")]
    levels = linear_levels(1000)
    close(task.levels, levels)
    expected = training_loss(theirs, *given, levels, darkest=-1.0, half=1 / 255)
    expected.backward()
    close(loss, expected)
    assert set(metrics) == ({"error", "bits"} if learn_sigma else set())

    theirs_by_name = dict(theirs.named_parameters())
    for name, parameter in model.named_parameters():
        gradient = theirs_by_name[name].grad
        if name.startswith("final_layer.linear"):
            P, C = theirs.patch, theirs.channels
            gradient = gradient.unflatten(0, (P, P, C)).permute(2, 0, 1, *range(3, gradient.ndim + 2)).flatten(0, 2)
        assert gradient.abs().max() > 1e-6, name
        close(parameter.grad, gradient)


@pytest.mark.parametrize("learn_sigma", [False, True])
def test_a_whole_trajectory_of_ddim_is_that_of_pytorch(learn_sigma):
    model, theirs = both(replace(SHAPE, learn_sigma=learn_sigma))
    levels, labels, steps = F.noise_levels("linear", 1000), np.array([3, 0, 4]), 20
    made = sample(model, levels, labels, steps=steps, guidance=2.0, seed=5, keep=steps + 1, threads=1)
    start = Key(5, path="sample.start").normal((3, 3, 4, 6), dtype="float64")
    expected = ddim(theirs, torch.tensor(start), torch.tensor(labels), 5, linear_levels(1000), steps, 2.0)
    assert len(made.steps) == len(expected) == steps + 1
    for ours, state in zip(made.steps, expected):
        np.testing.assert_allclose(ours, state.numpy(), rtol=1e-10, atol=1e-10 * float(state.abs().max()))
    np.testing.assert_array_equal(made.images, made.steps[-1])
