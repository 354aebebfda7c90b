"""Convolutions, pooling and ReLU against PyTorch's autograd, in float64."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import SIZES, seeds
from torch.nn import functional as T
from torch_autograd import assert_same_as_torch, normal

from tinyvit import functional as F

pytestmark = pytest.mark.parity

PAIRS = st.tuples(st.integers(1, 3), st.integers(1, 3))
MARGINS = st.tuples(st.integers(0, 3), st.integers(0, 3))


def sides(kernel, padding, more):
    """Images as large as the kernel needs, and a little more."""
    return [max(1, k - 2 * p) + m for k, p, m in zip(kernel, padding, more)]


@given(B=SIZES, groups=SIZES, each=SIZES, filters=SIZES, kernel=PAIRS, stride=PAIRS, padding=MARGINS, more=MARGINS,
       biased=st.booleans(), seed=seeds())  # fmt: skip
def test_conv2d_is_that_of_torch(B, groups, each, filters, kernel, stride, padding, more, biased, seed):
    shapes = (B, groups * each, *sides(kernel, padding, more)), (groups * filters, each, *kernel), (groups * filters,)
    arrays = normal(seed, *shapes)[: 2 + biased]
    options = {"stride": stride, "padding": padding, "groups": groups}
    assert_same_as_torch(F.conv2d, lambda *tensors: T.conv2d(*tensors, **options), *arrays, **options)


@pytest.mark.parametrize("C, filters, side, k, stride", [(3, 8, 33, 7, 2), (16, 24, 17, 3, 2), (32, 16, 9, 1, 1)])
def test_conv2d_is_that_of_torch_at_the_sizes_of_layers(C, filters, side, k, stride):
    x, weight = normal(0, (5, C, side, side), (filters, C, k, k), scale=0.3)
    options = {"stride": stride, "padding": k // 2}
    assert_same_as_torch(F.conv2d, lambda *tensors: T.conv2d(*tensors, **options), x, weight, **options)


@pytest.mark.parametrize("pool", [F.max_pool2d, F.avg_pool2d])
@given(B=SIZES, C=SIZES, kernel=PAIRS, stride=PAIRS | st.none(), more=MARGINS, padded=st.booleans(), seed=seeds())
def test_max_pool2d_and_avg_pool2d_are_those_of_torch(pool, B, C, kernel, stride, more, padded, seed):
    padding = tuple(padded * (side // 2) for side in kernel)
    x = normal(seed, (B, C, *sides(kernel, padding, more)))
    options = {"kernel_size": kernel, "stride": stride, "padding": padding}
    assert_same_as_torch(pool, lambda x: getattr(T, pool.__name__)(x, **options), x, **options)


@given(B=SIZES, C=SIZES, H=SIZES, W=SIZES, seed=seeds())
def test_global_avg_pool2d_is_that_of_torch(B, C, H, W, seed):
    x = normal(seed, (B, C, H, W))
    assert_same_as_torch(F.global_avg_pool2d, lambda x: T.adaptive_avg_pool2d(x, 1)[..., 0, 0], x)


def test_relu_is_that_of_torch_at_zero_infinity_and_nan_too():
    x = np.concatenate([normal(0, (20,)), [0.0, -0.0, np.inf, -np.inf, np.nan]])
    assert_same_as_torch(F.relu, T.relu, x)


@given(padding=st.tuples(*[st.integers(0, 3)] * 4), seed=seeds())
def test_zero_pad2d_is_that_of_torch(padding, seed):
    top, bottom, left, right = padding
    assert_same_as_torch(
        F.zero_pad2d, lambda x: T.pad(x, (left, right, top, bottom)), normal(seed, (2, 3, 4, 5)), padding=padding
    )
