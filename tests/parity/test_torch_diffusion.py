"""Conditions and losses of a diffusion model against PyTorch's autograd, in float64."""

from math import log

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from strategies import SIZES, seeds
from torch.nn import functional as T
from torch_autograd import assert_same_as_torch, normal

from tinyvit import functional as F

pytestmark = pytest.mark.parity

SHAPES = st.tuples(SIZES, SIZES, SIZES)


@given(shape=SHAPES, seed=seeds())
def test_modulate_and_add_gated_are_sums_and_products_of_torch(shape, seed):
    x, branch, offset, gain = normal(seed, shape, shape, shape[::2], shape[::2])

    def modulated(x, offset, gain):
        return torch.addcmul(offset[:, None] + x, x, gain[:, None])

    assert_same_as_torch(F.modulate, modulated, x, offset, gain)
    assert_same_as_torch(F.add_gated, lambda x, branch, gate: torch.addcmul(x, gate[:, None], branch), x, branch, gain)


@given(classes=SIZES, width=SIZES, B=SIZES, seed=seeds())
def test_embed_labels_is_torchs_embedding(classes, width, B, seed):
    labels = np.random.default_rng(seed).integers(0, classes, B)

    def theirs(weight):
        return T.embedding(torch.tensor(labels), weight)

    assert_same_as_torch(F.embed_labels, theirs, normal(seed, (classes, width)), labels=labels)


@given(shape=SHAPES, seed=seeds())
def test_add_noise_is_a_weighted_sum_of_torch(shape, seed):
    x, noise = normal(seed, shape, shape)
    level = np.random.default_rng(seed).random(shape[0])
    share = torch.tensor(level)[:, None, None]

    def theirs(x):
        return share.sqrt() * x + (1 - share).sqrt() * torch.tensor(noise)

    assert_same_as_torch(F.add_noise, theirs, x, noise=noise, level=level)


@given(shape=SHAPES, seed=seeds())
def test_variational_bound_is_that_of_torchs_distributions(shape, seed):
    random = np.random.default_rng(seed)
    x, gap = random.uniform(-1, 1, shape), 0.3 * random.standard_normal(shape)
    least = random.uniform(-4, -1, shape[0])
    first, place = random.random(shape[0]) < 0.5, random.random(shape)
    options = dict(gap=gap, least=least, most=least + random.uniform(0, 3, shape[0]), first=first, half=0.2,
                   ends=np.stack([place < 0.2, place > 0.8]))  # fmt: skip
    low, high = (torch.tensor(options[name])[:, None, None] for name in ("least", "most"))
    right, (darkest, brightest) = torch.tensor(gap), torch.tensor(options["ends"])

    def theirs(x):
        sigma = torch.exp(0.5 * torch.lerp(low, high, (x + 1) / 2))
        ours = torch.distributions.Normal(torch.zeros_like(x), sigma)
        exact = torch.distributions.Normal(right, torch.exp(0.5 * low).expand_as(x))
        upper = torch.where(brightest, 1.0, ours.cdf(right + 0.2))
        lower = torch.where(darkest, 0.0, ours.cdf(right - 0.2))
        divergence = torch.distributions.kl_divergence(exact, ours)
        return torch.where(torch.tensor(first)[:, None, None], -torch.log(upper - lower), divergence).mean() / log(2)

    assert_same_as_torch(F.variational_bound, theirs, x, **options)
