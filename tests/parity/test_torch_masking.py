"""Hidden tokens and the loss on what is guessed of them against PyTorch's autograd, in float64."""

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


@given(shape=st.tuples(SIZES, SIZES, SIZES), seed=seeds(), data=st.data())
def test_replace_tokens_and_place_tokens_are_where_and_scatter(shape, seed, data):
    B, N, D = shape
    x, token = normal(seed, shape, (1, 1, D))
    order = np.random.default_rng(seed).random((B, N)).argsort(1)
    mask = order % 2 == 0
    assert_same_as_torch(
        F.replace_tokens, lambda x, token: torch.where(torch.tensor(mask)[..., None], token, x), x, token, mask=mask
    )
    index = order[:, : data.draw(st.integers(1, N))]

    def placed(some, token):
        return token.repeat(B, N, 1).scatter(1, torch.tensor(index)[..., None].expand(-1, -1, D), some)

    assert_same_as_torch(F.place_tokens, placed, x[:, : index.shape[1]], token, index=index, count=N)


@given(shape=st.tuples(SIZES, SIZES, SIZES), seed=seeds())
def test_mean_squared_error_is_that_of_torch(shape, seed):
    x, targets = normal(seed, shape, shape)
    assert_same_as_torch(F.mean_squared_error, lambda x: T.mse_loss(x, torch.tensor(targets)), x, targets=targets)
