"""Layers that finish what the one before left to them against PyTorch's autograd, in float64."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from strategies import SIZES, seeds, tokens
from torch.nn import functional as T
from torch_autograd import assert_same_as_torch, normal

from tinyvit import functional as F
from tinyvit.backend import Key
from tinyvit.gradcheck import stacked

pytestmark = pytest.mark.parity


@given(x=tokens(), seed=seeds())
def test_bias_gelu_is_torchs_gelu_of_a_sum(x, seed):
    assert_same_as_torch(F.bias_gelu, lambda x, bias: T.gelu(x + bias), x, normal(seed, x.shape[-1:]))


@given(shape=st.tuples(st.integers(1, 6), SIZES, SIZES), rate=st.sampled_from([0.0, 0.4]), seed=seeds())
def test_add_branch_and_add_branch_layernorm_are_those_of_torch(shape, rate, seed):
    x, branch, offset, weight, bias = normal(seed, shape, shape, *[shape[-1:]] * 3)
    kept = F.drop_path.reference(0 * x + 1, rate, Key(seed))[0]  # 1 / keep, or 0

    def total(x, branch, offset):
        return torch.addcmul(x, torch.tensor(kept), branch + offset)

    def both(x, branch, offset, weight, bias):
        y = total(x, branch, offset)
        return torch.stack([y, T.layer_norm(y, weight.shape, weight, bias, 1e-5)])

    drop = dict(rate=rate, key=Key(seed))
    assert_same_as_torch(F.add_branch, total, x, branch, offset, **drop)
    assert_same_as_torch(stacked(F.add_branch_layernorm), both, x, branch, offset, weight, bias, eps=1e-5, **drop)
