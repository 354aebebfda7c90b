"""Operations and heads of dense prediction against PyTorch's autograd, in float64."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from strategies import SIZES, seeds
from torch.nn import functional as T
from torch_autograd import assert_same_as_torch, normal

from tinyvit import functional as F
from tinyvit.models.convnet import MapNorm

pytestmark = pytest.mark.parity

MAPS = st.tuples(SIZES, SIZES, SIZES, SIZES)


@given(shape=MAPS, filters=SIZES, kernel=st.tuples(SIZES, SIZES), biased=st.booleans(), seed=seeds())
def test_conv_transpose2d_is_that_of_torch(shape, filters, kernel, biased, seed):
    arrays = normal(seed, shape, (shape[1], filters, *kernel), (filters,))[: 2 + biased]
    assert_same_as_torch(F.conv_transpose2d, lambda *a: T.conv_transpose2d(*a, stride=kernel), *arrays, stride=kernel)


@given(shape=MAPS, size=st.tuples(st.integers(1, 9), st.integers(1, 9)), seed=seeds())
def test_resize_bilinear_is_interpolate_without_aligned_corners(shape, size, seed):
    resized = {"size": size, "mode": "bilinear", "align_corners": False}
    assert_same_as_torch(F.resize_bilinear, lambda x: T.interpolate(x, **resized), normal(seed, shape), size=size)


@given(shape=MAPS, ignored=st.sampled_from([0, 0.5]), seed=seeds())
def test_pixel_cross_entropy_is_that_of_torch(shape, ignored, seed):
    (B, K, H, W), generator = shape, np.random.default_rng(seed)
    labels = np.where(generator.random((B, H, W)) < ignored, 255, generator.integers(0, K, (B, H, W)))
    labels[0, 0, 0] = 0  # of no pixel at all PyTorch's mean is NaN
    assert_same_as_torch(
        F.pixel_cross_entropy, lambda x: T.cross_entropy(x, torch.tensor(labels), ignore_index=255),
        normal(seed, shape, scale=3.0), labels=labels,
    )  # fmt: skip


@given(shape=MAPS, seed=seeds())
def test_a_norm_of_maps_is_a_layer_norm_over_their_channels(shape, seed):
    norm = MapNorm(shape[1])
    norm.materialize(0, "float64", "cpu", None)
    x, weight, bias = normal(seed, shape, shape[1:2], shape[1:2])

    def by_hand(x, weight, bias):
        norm.weight.data, norm.bias.data = weight, bias
        return norm(x)

    def backward(dy, cache):
        norm.zero_grad()
        return norm.backward(dy, cache), norm.weight.grad, norm.bias.grad

    def by_torch(x, weight, bias):
        return T.layer_norm(x.movedim(1, -1), shape[1:2], weight, bias, 1e-6).movedim(-1, 1)

    assert_same_as_torch(by_hand, by_torch, x, weight, bias, backward=backward)
