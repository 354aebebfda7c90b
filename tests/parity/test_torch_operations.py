"""Every operation against PyTorch's autograd, in float64."""

import re
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from strategies import SIZES, classified, heads, images_and_patch, seeds, tokens
from torch.nn import functional as T
from torch_autograd import assert_same_as_torch, by_autograd, by_hand, normal
from torch_vit import rotated

from tinyvit import functional as F
from tinyvit.gradcheck import stack_results

pytestmark = pytest.mark.parity

RATES = st.floats(0.1, 0.9)
SCALES = st.sampled_from([1e-3, 1.0, 1e3])


@st.composite
def heads_and_bias(draw):
    """Queries, keys and values with a bias that broadcasts to the scores (B, H, Nq, Nk), scalar included."""
    q, k, v = draw(heads())
    sides = (draw(st.sampled_from([1, side])) for side in (*q.shape[:3], k.shape[2]))
    return q, k, v, normal(draw(seeds()), tuple(sides)[draw(st.integers(0, 4)) :])


@st.composite
def heads_on_a_grid(draw):
    """Queries or keys (B, H, prefix + rows·columns, d) with d a multiple of 4, and the grid."""
    B, H, rows, columns, quarter = (draw(SIZES) for _ in range(5))
    return normal(draw(seeds()), (B, H, draw(st.integers(0, 2)) + rows * columns, 4 * quarter)), (rows, columns)


def test_every_operation_is_compared_with_torch():
    files = Path(__file__).parent.glob("test_torch_*.py")
    tests = [name for file in files for name in re.findall(r"^def (test_\w+)", file.read_text("utf-8"), re.MULTILINE)]
    operations = [name for name in dir(F) if hasattr(F, f"{name}_backward")]
    assert [op for op in operations if not any(op in name for name in tests)] == []


@given(x=tokens(), width=SIZES, seed=seeds())
def test_linear_is_that_of_torch(x, width, seed):
    weight, bias = normal(seed, (width, x.shape[-1]), (width,))
    assert_same_as_torch(F.linear, T.linear, x, weight, bias)
    assert_same_as_torch(F.linear, T.linear, x, weight)


@given(x=tokens(), eps=st.sampled_from([1e-6, 1e-5, 1e-2]), seed=seeds())
def test_layernorm_and_rmsnorm_are_those_of_torch(x, eps, seed):
    D = x.shape[-1]
    weight, bias = normal(seed, (D,), (D,))
    assert_same_as_torch(F.layernorm, lambda x, w, b: T.layer_norm(x, (D,), w, b, eps), x, weight, bias, eps=eps)
    assert_same_as_torch(F.rmsnorm, lambda x, w: T.rms_norm(x, (D,), w, eps), x, weight, eps=eps)


@given(x=tokens(), num_heads=SIZES, d=SIZES, seed=seeds())
def test_split_heads_is_a_view_of_torch_and_merge_heads_takes_it_back(x, num_heads, d, seed):
    B, N = len(x), x[0].size // x.shape[-1]

    def cut(x):
        return x.view(B, N, 3, num_heads, d).permute(2, 0, 3, 1, 4)

    x = normal(seed, (B, N, 3 * num_heads * d))
    assert_same_as_torch(stack_results(F.split_heads), cut, x, num_heads=num_heads)
    joined = normal(seed, (B, num_heads, N, d))
    assert_same_as_torch(F.merge_heads, lambda x: x.transpose(1, 2).flatten(2), joined)


@given(x=tokens(), scale=SCALES)
def test_softmax_is_that_of_torch(x, scale):
    assert_same_as_torch(F.softmax, lambda x: torch.softmax(x, -1), scale * x)


@given(qkv=heads(), scale=st.none() | st.floats(0.1, 3))
def test_attention_is_that_of_torch(qkv, scale):
    sdpa = T.scaled_dot_product_attention
    assert_same_as_torch(F.attention, lambda q, k, v: sdpa(q, k, v, scale=scale), *qkv, scale=scale)


@given(inputs=heads_and_bias(), scale=st.none() | st.floats(0.1, 3))
def test_attention_with_any_bias_that_broadcasts_is_that_of_torch(inputs, scale):
    q, k, *_ = inputs
    scores = *q.shape[:3], k.shape[2]

    def sdpa(q, k, v, bias):
        return T.scaled_dot_product_attention(q, k, v, bias.expand(scores), scale=scale)

    assert_same_as_torch(F.attention, sdpa, *inputs, scale=scale)


@pytest.mark.parametrize("operation", [F.attention, F.tiled_attention])
def test_causal_attention_is_that_of_torch(operation):
    q, k, v, dy = np.random.default_rng(0).standard_normal((4, 2, 3, 5, 4))
    y, cache = operation(q, k, v, np.where(np.tri(5), 0.0, -np.inf))
    inputs = [torch.tensor(x, requires_grad=True) for x in (q, k, v)]
    expected = T.scaled_dot_product_attention(*inputs, is_causal=True)
    wanted = torch.autograd.grad(expected, inputs, torch.tensor(dy))
    for got, want in zip((y, *F.attention_backward(dy, cache)), (expected.detach(), *wanted)):
        np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-10)


@given(inputs=heads_and_bias(), biased=st.booleans(), scale=st.none() | st.floats(0.1, 3), tile=st.integers(1, 6))
def test_tiled_attention_is_that_of_torch(inputs, biased, scale, tile):
    q, k, *_ = inputs
    scores = *q.shape[:3], k.shape[2]

    def sdpa(q, k, v, *bias):
        return T.scaled_dot_product_attention(q, k, v, *(b.expand(scores) for b in bias), scale=scale)

    assert_same_as_torch(F.tiled_attention, sdpa, *inputs[: 3 + biased], scale=scale, tile=tile)


@given(inputs=heads_and_bias(), rate=RATES, seed=seeds())
def test_attention_dropout_is_that_of_torch_with_the_same_mask(inputs, rate, seed):
    def ours(q, k, v, bias):
        return F.attention_dropout(q, k, v, bias, rate=rate, key=seed)

    mask = torch.tensor(ours(*inputs)[1].dropout.mask)

    def theirs(q, k, v, bias):
        probs = torch.softmax(q @ k.mT / q.shape[-1] ** 0.5 + bias, -1)
        return probs * mask / (1 - rate) @ v

    assert_same_as_torch(ours, theirs, *inputs, backward=F.attention_dropout_backward)


@pytest.mark.parametrize("operation", [F.dropout, F.drop_path])
@given(x=tokens(), rate=RATES, seed=seeds())
def test_dropout_and_drop_path_are_a_product_with_mask_over_keep(operation, x, rate, seed):
    mask = torch.tensor(operation(x, rate, seed)[1].mask)
    assert mask.shape == (x.shape if operation is F.dropout else (len(x), 1, 1))
    assert_same_as_torch(operation, lambda x: x * mask / (1 - rate), x, rate=rate, key=seed)


@given(x=tokens(), scale=SCALES)
def test_gelu_is_that_of_torch(x, scale):
    assert_same_as_torch(F.gelu, T.gelu, scale * x)


@given(x=tokens(), scale=SCALES)
def test_gelu_tanh_is_that_of_torch(x, scale):
    assert_same_as_torch(F.gelu_tanh, lambda x: T.gelu(x, approximate="tanh"), scale * x)


@given(x=tokens(), scale=SCALES)
def test_tanh_is_that_of_torch(x, scale):
    assert_same_as_torch(F.tanh, torch.tanh, scale * x)


@given(inputs=images_and_patch())
def test_patchify_is_unfold_with_the_patch_as_its_stride(inputs):
    x, patch = inputs
    assert_same_as_torch(F.patchify, lambda x: T.unfold(x, patch, stride=patch).mT, x, patch=patch)


@given(inputs=images_and_patch(), width=SIZES, seed=seeds())
def test_patchify_then_linear_is_a_convolution_with_the_patch_as_its_stride(inputs, width, seed):
    x, patch = inputs
    weight, bias = normal(seed, (width, x.shape[1], *patch), (width,))

    def embed(x, weight, bias):
        patches, c_patches = F.patchify(x, patch)
        tokens, c_linear = F.linear(patches, weight.reshape(width, -1), bias)
        return tokens, (c_patches, c_linear)

    def embed_backward(dtokens, cache):
        dpatches, dweight, dbias = F.linear_backward(dtokens, cache[1])
        return F.patchify_backward(dpatches, cache[0]), dweight.reshape(weight.shape), dbias

    def conv(x, weight, bias):
        return T.conv2d(x, weight, bias, stride=patch).flatten(2).mT

    assert_same_as_torch(embed, conv, x, weight, bias, backward=embed_backward)


@given(inputs=images_and_patch(), seed=seeds())
def test_unpatchify_is_fold_with_the_patch_as_its_stride(inputs, seed):
    (B, C, H, W), patch = inputs[0].shape, inputs[1]
    patches = normal(seed, (B, H * W // (patch[0] * patch[1]), C * patch[0] * patch[1]))

    def fold(x):
        return T.fold(x.mT, (H, W), patch, stride=patch)

    assert_same_as_torch(F.unpatchify, fold, patches, patch=patch, img_size=(H, W))


@given(x=tokens(), seed=seeds())
def test_prepend_token_is_a_concatenation(x, seed):
    def cat(x, token):
        return torch.cat([token.expand(len(x), -1, -1), x], 1)

    assert_same_as_torch(F.prepend_token, cat, x, normal(seed, (1, 1, x.shape[-1])))


@given(x=tokens(), seed=seeds())
def test_add_positions_is_a_broadcast_sum(x, seed):
    assert_same_as_torch(F.add_positions, torch.add, x, normal(seed, (1, *x.shape[1:])))


@given(rows=SIZES, columns=SIZES, half=SIZES, seed=seeds())
def test_grid_positions_puts_the_columns_vector_beside_the_rows_vector(rows, columns, half, seed):
    def grid(along_x, along_y):
        patches = [torch.cat([along_x[:, j], along_y[:, i]], -1) for i in range(rows) for j in range(columns)]
        return torch.stack([torch.zeros_like(patches[0]), *patches], 1)

    assert_same_as_torch(F.grid_positions, grid, *normal(seed, (1, columns, half), (1, rows, half)))


@given(x=tokens())
def test_pool_token_is_the_first_token(x):
    assert_same_as_torch(F.pool_token, lambda x: x[:, 0], x)


@given(x=tokens(), data=st.data())
def test_pool_mean_is_the_mean_of_what_follows_the_prefix(x, data):
    prefix = data.draw(st.integers(0, x.shape[1] - 1))
    assert_same_as_torch(F.pool_mean, lambda x: x[:, prefix:].mean(1), x, prefix=prefix)


@given(x=tokens(), seed=seeds())
def test_take_tokens_is_torchs_gather(x, seed):
    B, N, D = x.shape
    index = np.random.default_rng(seed).permuted(np.tile(np.arange(N), (B, 1)), axis=1)[:, : 1 + seed % N]
    places = torch.from_numpy(index)[:, :, None].expand(-1, -1, D)
    assert_same_as_torch(F.take_tokens, lambda x: x.gather(1, places), x, index=index)


RESIZED = {"grid": st.tuples(*[st.integers(1, 9)] * 2), "new_grid": st.tuples(*[st.integers(1, 14)] * 2)}
OF_TORCH = st.sampled_from(["bilinear", "bicubic"])


def interpolated(x, grid, new_grid, mode):
    """Positions resized by PyTorch, the class token's kept."""
    image = x[:, 1:].reshape(1, *grid, -1).permute(0, 3, 1, 2)
    image = T.interpolate(image, new_grid, mode=mode, align_corners=False)
    return torch.cat([x[:, :1], image.permute(0, 2, 3, 1).reshape(1, -1, x.shape[2])], 1)


@given(**RESIZED, method=OF_TORCH, seed=seeds())
def test_resize_positions_is_torchs_interpolation(grid, new_grid, method, seed):
    positions = normal(seed, (1, 1 + grid[0] * grid[1], 3))
    theirs = partial(interpolated, grid=grid, new_grid=new_grid, mode=method)
    assert_same_as_torch(F.resize_positions, theirs, positions, grid=grid, new_grid=new_grid, method=method)


@given(**RESIZED, method=OF_TORCH, seed=seeds())
def test_resize_positions_in_float32_is_torchs_within_a_millionth(grid, new_grid, method, seed):
    # As large as at the start: PyTorch rounds the places to float32, and is then 1e-5 from its own float64 for N(0, 1).
    positions = normal(seed, (1, 1 + grid[0] * grid[1], 3), scale=0.02).astype("float32")
    options = dict(grid=grid, new_grid=new_grid)
    dy = normal(0, np.shape(F.resize_positions(positions, **options)[0]), scale=0.02).astype("float32")
    got = by_hand(F.resize_positions, [positions], dy, **options, method=method)
    expected = by_autograd(partial(interpolated, **options, mode=method), [positions], dy)
    for ours, theirs in zip(got, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-6, strict=True)


@given(inputs=heads_on_a_grid(), theta=st.sampled_from([100.0, 10000.0]))
def test_rope_is_a_product_of_complex_numbers(inputs, theta):
    x, grid = inputs
    assert_same_as_torch(F.rope, lambda x: rotated(x, grid, theta), x, grid=grid, theta=theta)


def test_rope_turns_by_theta_100_unless_told_otherwise():
    x = normal(0, (2, 3, 1 + 2 * 3, 8))
    assert_same_as_torch(F.rope, lambda x: rotated(x, (2, 3), 100.0), x, grid=(2, 3))


@given(inputs=classified(), smoothing=st.just(0.0) | st.floats(0, 1), scale=SCALES)
def test_cross_entropy_of_labels_is_that_of_torch(inputs, smoothing, scale):
    logits, labels = inputs
    assert_same_as_cross_entropy(scale * logits, labels, smoothing)


@given(inputs=classified(), smoothing=st.just(0.0) | st.floats(0, 1), seed=seeds())
def test_cross_entropy_of_probabilities_is_that_of_torch(inputs, smoothing, seed):
    logits, _ = inputs
    B, K = logits.shape
    assert_same_as_cross_entropy(logits, np.random.default_rng(seed).dirichlet(np.ones(K), B), smoothing)


def assert_same_as_cross_entropy(logits, targets, smoothing):
    def theirs(logits):
        return T.cross_entropy(logits, torch.tensor(targets), label_smoothing=smoothing)

    assert_same_as_torch(F.cross_entropy, theirs, logits, targets=targets, label_smoothing=smoothing)
