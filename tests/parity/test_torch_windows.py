"""Windows, relative positions, gates, tokens and a teacher against PyTorch's autograd, in float64."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from strategies import SIZES, seeds
from torch.nn import functional as T
from torch_autograd import assert_same_as_torch, normal

from tinyvit import functional as F

pytestmark = pytest.mark.parity

GRIDS = st.tuples(SIZES, st.integers(1, 6), st.integers(1, 6), SIZES)
WINDOWS = st.tuples(st.integers(2, 4), st.integers(2, 4))


def padded(x, p, q):
    return T.pad(x, (0, 0, 0, -x.shape[2] % q, 0, -x.shape[1] % p))


@given(shape=GRIDS, window=WINDOWS, shift=st.integers(0, 1), seed=seeds())
def test_to_windows_and_from_windows_are_rolled_and_unfolded_grids(shape, window, shift, seed):
    p, q = window

    def cut(x):
        x = torch.roll(padded(x, p, q), (-shift, -shift), (1, 2))
        windows = x.unfold(1, p, p).unfold(2, q, q)                            # (B, rows, columns, D, p, q)
        return windows.permute(0, 1, 2, 4, 5, 3).reshape(-1, p * q, shape[3])

    def joined(windows):
        B, H, W, D = shape
        rows, columns = -(-H // p), -(-W // q)
        maps = windows.reshape(B, rows * columns, p * q, D).permute(0, 3, 2, 1).reshape(B, D * p * q, rows * columns)
        x = T.fold(maps, (rows * p, columns * q), (p, q), stride=(p, q)).permute(0, 2, 3, 1)
        return torch.roll(x, (shift, shift), (1, 2))[:, :H, :W]

    options = {"window": window, "shift": shift}
    x = normal(seed, shape)
    assert_same_as_torch(F.to_windows, cut, x, **options)
    windows = F.to_windows(x, **options)[0]
    assert_same_as_torch(F.from_windows, joined, normal(seed, windows.shape), sides=shape[1:3], **options)


@given(shape=GRIDS, seed=seeds())
def test_merge_patches_puts_slices_side_by_side(shape, seed):
    def merged(x):
        x = padded(x, 2, 2)
        return torch.cat([x[:, row::2, column::2] for column in (0, 1) for row in (0, 1)], -1)

    assert_same_as_torch(F.merge_patches, merged, normal(seed, shape))


@given(sides=st.tuples(st.integers(1, 4), st.integers(1, 4)), heads=SIZES, seed=seeds())
def test_relative_bias_is_an_indexed_table(sides, heads, seed):
    rows, columns = sides
    places = torch.cartesian_prod(torch.arange(rows), torch.arange(columns))
    apart = places[:, None] - places + torch.tensor([rows - 1, columns - 1])
    index = apart[..., 0] * (2 * columns - 1) + apart[..., 1]
    table = normal(seed, ((2 * rows - 1) * (2 * columns - 1), heads))
    assert_same_as_torch(F.relative_bias, lambda table: table[index].permute(2, 0, 1), table, sides=sides)


@given(shape=st.tuples(SIZES, SIZES, SIZES), seed=seeds())
def test_sigmoid_and_silu_are_those_of_torch(shape, seed):
    x = normal(seed, shape, scale=5.0)
    assert_same_as_torch(F.sigmoid, torch.sigmoid, x)
    assert_same_as_torch(F.silu, T.silu, x)


@given(shape=st.tuples(SIZES, SIZES, SIZES), seed=seeds())
def test_swiglu_and_layer_scale_are_products_of_torch(shape, seed):
    x, up, weight = normal(seed, shape, shape, shape[2:])
    assert_same_as_torch(F.swiglu, lambda gate, up: T.silu(gate) * up, x, up)
    assert_same_as_torch(F.layer_scale, lambda x, weight: x * weight, x, weight)


@given(shape=st.tuples(SIZES, SIZES, SIZES, SIZES), seed=seeds())
def test_scale_channels_is_a_broadcast_product(shape, seed):
    def scaled(x, weight):
        return x * weight[:, :, None, None]

    assert_same_as_torch(F.scale_channels, scaled, *normal(seed, shape, shape[:2]))


@given(shape=st.tuples(SIZES, SIZES, SIZES), count=SIZES, seed=seeds(), data=st.data())
def test_insert_tokens_and_first_tokens_are_concatenations_and_slices(shape, count, seed, data):
    B, N, D = shape
    at = data.draw(st.integers(0, N))
    x, token = normal(seed, shape, (1, count, D))

    def inserted(x, token):
        return torch.cat([x[:, :at], token.expand(B, -1, -1), x[:, at:]], 1)

    assert_same_as_torch(F.insert_tokens, inserted, x, token, at=at)
    first = data.draw(st.integers(1, N))
    assert_same_as_torch(F.first_tokens, lambda x: x[:, :first].flatten(1), x, count=first)


@given(shape=st.tuples(SIZES, SIZES), temperature=st.sampled_from([0.5, 1.0, 3.0]), seed=seeds())
def test_distillation_is_the_kl_divergence_of_torch(shape, temperature, seed):
    logits, teacher = normal(seed, shape, shape, scale=2.0)

    def loss(logits):
        q, p = (T.log_softmax(x / temperature, 1) for x in (logits, torch.tensor(teacher)))
        return T.kl_div(q, p, reduction="sum", log_target=True) * temperature**2 / logits.numel()

    assert_same_as_torch(F.distillation, loss, logits, teacher=teacher, temperature=temperature)
