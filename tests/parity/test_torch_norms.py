"""Norms over channels and standardised weights against PyTorch's autograd, in float64."""

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
