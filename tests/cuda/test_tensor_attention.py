import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numbers_of import numbers, sizes_of_sums, to
from strategies import every_shape_that_broadcasts

import tinyvit
from tinyvit import functional as F
from tinyvit.kernels.cuda import tensor_attention
from tinyvit.kernels.cuda.attention import supported
from tinyvit.kernels.cuda.fused_attention import FusedAttentionCache
from tinyvit.kernels.cuda.tensor_attention import ROWS, WIDTHS, TensorAttentionCache

# DESIGN.md's, of the largest number or sum of absolute terms: operands are rounded to `dtype`, results once more.
BOUNDS = {"bfloat16": 1.6e-2, "float16": 2e-3}
# Mostly short sequences, as the emulator is slow; and some that take more than one tile.
TOKENS = st.one_of(st.integers(1, 40), st.sampled_from((ROWS, ROWS + 1, 2 * ROWS + 30)))


def checked(cupy, q, k, v, dy, dtype, scale=0.25, bias=None):
    """Compare forward and backward on the device with the reference implementation in float64, and run them twice."""
    arrays = [to(cupy, x, dtype) for x in (q, k, v, dy)]
    assert tensor_attention.fits(*arrays[:3])
    on_device = None if bias is None else to(cupy, bias)
    got, again = ([x.get() for x in run(*arrays, on_device, scale)] for _ in range(2))
    expected, c = F.attention.reference(q, k, v, bias, scale)
    expected = expected, *F.attention_backward.reference(dy, c)
    sizes = [*sizes_of_sums(q, k, v, dy, c.probs, scale), 1][: len(expected)]
    for i, (a, b, wanted, size) in enumerate(zip(got, again, expected, sizes, strict=True)):
        assert a.dtype == (dtype if i < 4 else "float32") and a.tobytes() == b.tobytes()
        bound = BOUNDS[dtype] * max(size, abs(wanted).max())
        np.testing.assert_allclose(a.astype("float64"), wanted, rtol=0, atol=bound)
    return got


def run(q, k, v, dy, bias, scale):
    y, cache = F.attention(q, k, v, bias, scale)
    assert type(cache) is TensorAttentionCache
    return y, *F.attention_backward(dy, cache)


@pytest.mark.parametrize("dtype", BOUNDS)
@given(
    B=st.integers(1, 2), H=st.integers(1, 4), N=TOKENS, Nk=st.one_of(st.none(), TOKENS), width=st.sampled_from(WIDTHS),
    bias=st.booleans(), scale=st.sampled_from((0.25, 1.0, -0.5, 0.0)), seed=st.integers(0, 99),
)  # fmt: skip
def test_heads_and_all_gradients_are_those_of_the_reference(cupy, dtype, B, H, N, Nk, width, bias, scale, seed):
    Nk = N if Nk is None else Nk
    q, dy = numbers(2, B, H, N, width, dtype=dtype, seed=seed)
    k, v = numbers(2, B, H, Nk, width, dtype=dtype, seed=seed + 1)
    checked(cupy, q, k, v, dy, dtype, scale, numbers(H, N, Nk, seed=seed + 2) if bias else None)


@pytest.mark.parametrize("dtype", BOUNDS)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("N, Nk", [(17, 17), (5, ROWS + 4)])
def test_every_width_is_right_in_one_tile_and_in_several_with_and_without_a_bias(cupy, dtype, width, N, Nk):
    q, dy = numbers(2, 1, 2, N, width, dtype=dtype)
    k, v = numbers(2, 1, 2, Nk, width, dtype=dtype, seed=1)
    for bias in (None, numbers(2, N, Nk, seed=2)):
        checked(cupy, q, k, v, dy, dtype, bias=bias)


@pytest.mark.parametrize("dtype", BOUNDS)
def test_a_bias_of_every_shape_that_broadcasts_is_added_and_gets_its_gradient(cupy, dtype):
    q, dy = numbers(2, 2, 3, 5, 16, dtype=dtype)
    k, v = numbers(2, 2, 3, 4, 16, dtype=dtype, seed=1)
    for shape in every_shape_that_broadcasts(2, 3, 5, 4):
        checked(cupy, q, k, v, dy, dtype, bias=numbers(*shape, seed=2))


@pytest.mark.parametrize("N", [40, ROWS + 20])
@pytest.mark.parametrize("masked", [-np.inf, float(np.finfo("float32").min)])
def test_masked_keys_are_ignored_and_a_fully_masked_query_gives_zeros(cupy, N, masked):
    q, k, v, dy = numbers(4, 1, 2, N, 16, dtype="bfloat16")
    mask = np.where(np.tri(N), 0.0, masked)
    mask[7] = -np.inf
    y, dq, *_, dmask = checked(cupy, q, k, v, dy, "bfloat16", bias=mask)
    assert not y[:, :, 7].any() and not dq[:, :, 7].any() and not dmask[7].any()


def test_a_product_that_only_the_scale_makes_finite_does_no_harm(cupy):
    q = np.zeros((1, 1, 2, 16))
    q[..., 0] = 2.0**64  # q kᵀ is beyond float32; q kᵀ · scale is not
    x, dy = to(cupy, q, "bfloat16"), to(cupy, numbers(1, 1, 2, 16), "bfloat16")
    _, cache = F.attention(x, x, dy)
    np.testing.assert_array_equal(cache.inverse.get(), 0.5)
    assert all(np.isfinite(x.get().astype("float32")).all() for x in F.attention_backward(dy, cache))


@pytest.mark.parametrize("dtype", BOUNDS)
@pytest.mark.parametrize("size", [200, -200])
def test_scores_far_from_zero_do_no_harm(cupy, dtype, size):
    q, k, v, dy = numbers(4, 1, 1, 20, 16, dtype=dtype, seed=2)
    checked(cupy, size + np.round(q), 1 + np.round(k), v, dy, dtype, 1.0)  # scores of thousands, exact


@pytest.mark.parametrize("H, N", [(7, 3), (7, 20), (3, 5 * 16 + 1)])
def test_heads_and_rows_that_dont_fill_a_block_are_computed_all_the_same(cupy, H, N):
    q, k, v, dy = numbers(4, 2, H, N, 16, dtype="bfloat16", seed=3)
    checked(cupy, q, k, v, dy, "bfloat16")


@pytest.mark.parametrize("N", [40, ROWS + 10])
@pytest.mark.parametrize("bias", [False, True])
def test_no_order_of_the_threads_changes_a_bit(cupy, any_order, N, bias):
    q, k, v, dy = numbers(4, 1, 3, N, 32, dtype="bfloat16", seed=1)
    checked(cupy, q, k, v, dy, "bfloat16", bias=numbers(3, N, N) if bias else None)


@pytest.mark.parametrize("dtype", BOUNDS)
def test_queries_keys_and_values_are_read_where_the_layer_wrote_them(cupy, dtype):
    qkv, dy = numbers(2, 9, 3, 4, 16, dtype=dtype, seed=5), numbers(2, 9, 4, 16, dtype=dtype, seed=6)
    q, k, v = to(cupy, qkv, dtype).transpose(2, 0, 3, 1, 4)
    y, cache = F.attention(q, k, v)
    expected, c = F.attention.reference(*qkv.transpose(2, 0, 3, 1, 4))
    assert cache.q is q and y.transpose(0, 2, 1, 3).flags.c_contiguous  # and the heads lie as the next layer reads them
    gradients = F.attention_backward(to(cupy, dy, dtype).transpose(0, 2, 1, 3), cache)
    assert gradients.joined.shape == (2, 9, 3, 4, 16)
    wanted = expected, *F.attention_backward.reference(dy.transpose(0, 2, 1, 3), c)
    for a, b in zip((y, *gradients), wanted, strict=True):
        np.testing.assert_allclose(a.get().astype("float64"), b, atol=BOUNDS[dtype] * max(1, abs(b).max()))
    np.testing.assert_allclose(cache.probs.get(), c.probs, atol=1e-5)


def test_what_the_kernels_dont_support_is_left_to_others(cupy):
    for dtype, shape in [
        ("float32", (2, 3, 5, 16)), ("bfloat16", (2, 3, 5, 8)), ("float16", (2, 3, 5, 40)), ("float16", (0, 3, 5, 16)),
    ]:  # fmt: skip
        x = to(cupy, numbers(*shape), dtype)
        assert not (supported(x, x, x, None, None) and tensor_attention.fits(x, x, x))
    x = to(cupy, numbers(2, 3, 5, 17), "bfloat16")[..., 1:]
    assert not tensor_attention.fits(x, x, x), "rows don't start on 16 bytes"


def test_a_gpu_without_the_instructions_gets_the_kernels_for_ordinary_cores(cupy, monkeypatch):
    monkeypatch.setattr(tensor_attention, "has_tensor_cores", lambda x: False)
    x = to(cupy, numbers(1, 2, 5, 16), "float16")
    _, cache = F.attention(x, x, x)
    assert type(cache) is FusedAttentionCache
    with tinyvit.reference():  # a backward goes with its cache
        assert F.attention_backward(x, cache)[0].dtype == "float16"
