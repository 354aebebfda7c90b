"""Norms over channels and standardised weights against PyTorch's autograd, in float64."""

import numpy as np
import pytest
import torch
from batch_normed import CLASSES, SHAPE, Normed, batch
from hypothesis import given
from hypothesis import strategies as st
from strategies import SIZES, seeds
from torch.nn import functional as T
from torch_autograd import assert_all_close, assert_same_as_torch, normal

from tinyvit import Context, optim
from tinyvit import functional as F
from tinyvit.training import train_step

pytestmark = pytest.mark.parity

EPS = st.sampled_from([1e-6, 1e-5, 1e-2])


@given(B=st.integers(1, 4), C=SIZES, side=st.integers(2, 5), eps=EPS, seed=seeds())
def test_batch_norm_is_that_of_torch(B, C, side, eps, seed):
    x, weight, bias = normal(seed, (B, C, side, 3), (C,), (C,))

    def theirs(x, weight, bias):
        return T.batch_norm(x, None, None, weight, bias, training=True, eps=eps)

    assert_same_as_torch(F.batch_norm, theirs, x, weight, bias, eps=eps)


@given(B=st.integers(1, 4), C=SIZES, side=st.integers(1, 5), eps=EPS, seed=seeds())
def test_batch_norm_running_is_that_of_torch(B, C, side, eps, seed):
    x, weight, bias, mean = normal(seed, (B, C, side, 3), (C,), (C,), (C,))
    variance = np.random.default_rng(seed).uniform(0.1, 3, C)

    def theirs(x, weight, bias):
        return T.batch_norm(x, torch.tensor(mean), torch.tensor(variance), weight, bias, training=False, eps=eps)

    assert_same_as_torch(F.batch_norm_running, theirs, x, weight, bias, mean=mean, variance=variance, eps=eps)


@given(B=st.integers(1, 4), groups=SIZES, each=SIZES, side=st.integers(1, 5), eps=EPS, seed=seeds())
def test_group_norm_is_that_of_torch(B, groups, each, side, eps, seed):
    C = groups * each
    x, weight, bias = normal(seed, (B, C, side, 3), (C,), (C,))
    assert_same_as_torch(
        F.group_norm, lambda x, w, b: T.group_norm(x, groups, w, b, eps), x, weight, bias, num_groups=groups, eps=eps
    )


@given(filters=SIZES, fan=st.integers(1, 4), side=st.integers(1, 3), seed=seeds())
def test_standardize_weight_is_the_batch_norm_of_filters_that_transformers_takes(filters, fan, side, seed):
    weight = normal(seed, (filters, fan, side, 2))

    def theirs(weight):
        return T.batch_norm(weight.reshape(1, filters, -1), None, None, training=True, eps=1e-6).reshape_as(weight)

    assert_same_as_torch(F.standardize_weight, theirs, weight)


@given(filters=SIZES, fan=st.integers(1, 4), side=st.integers(1, 3), seed=seeds())
def test_standardize_weight_original_divides_by_the_standard_deviation_plus_epsilon(filters, fan, side, seed):
    weight = normal(seed, (filters, fan, side, 2))

    def theirs(weight):
        centred = weight - weight.mean((1, 2, 3), keepdim=True)
        return centred / (centred.std((1, 2, 3), keepdim=True, correction=0) + 1e-5)

    assert_same_as_torch(F.standardize_weight_original, theirs, weight)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_weights_and_running_statistics_of_ten_steps_are_those_of_torch(threads):
    model = Normed()
    norms = [torch.nn.BatchNorm2d(SHAPE[0]), torch.nn.BatchNorm2d(SHAPE[0], eps=1e-3, momentum=0.3)]
    twin = torch.nn.ModuleDict({"norm1": norms[0], "norm2": norms[1], "fc": torch.nn.Linear(SHAPE[0], CLASSES)})
    twin.double().load_state_dict({k: torch.tensor(v) for k, v in model.state_dict().items()}, strict=False)
    ours, theirs = optim.SGD(model, 0.1, momentum=0.9), torch.optim.SGD(twin.parameters(), 0.1, momentum=0.9)
    for step in range(10):
        images, labels = batch(7, seed=step)
        result = train_step(model, ours, images, labels, Context(training=True), threads=threads)
        x = T.gelu(twin["norm2"](T.gelu(twin["norm1"](torch.tensor(images)))))
        loss = T.cross_entropy(twin["fc"](x.mean((2, 3))), torch.tensor(labels))
        theirs.zero_grad()
        loss.backward()
        theirs.step()
        np.testing.assert_allclose(result.loss, loss.item(), rtol=1e-10)
    expected = {name: x.numpy() for name, x in twin.state_dict().items() if "num_batches" not in name}
    assert_all_close(model.state_dict(), {name: expected[name] for name in model.state_dict()})
