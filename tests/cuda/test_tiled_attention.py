import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numbers_of import DTYPE, EPSILON, numbers, to
from test_attention import SIDES, close, compare_with_the_reference, side_by_side_in, sizes_of_sums

import tinyvit
from tinyvit import functional as F
from tinyvit.functional.tiled_attention import TILE, TiledAttentionCache
from tinyvit.kernels.cuda import tiled_attention
from tinyvit.kernels.cuda.tiled_attention import sizes_of_tile

LOW = ("bfloat16", "float16")
TOKENS = st.integers(1, 20)
TILES = st.sampled_from((1, 3, 8, 13, TILE))
INF = float("inf")


@pytest.mark.parametrize("dtype", EPSILON)
@given(B=SIDES, H=SIDES, N=TOKENS, d=st.integers(1, 9), tile=TILES, seed=st.integers(0, 99))
def test_self_attention_in_tiles_and_its_backward_are_those_of_attention(cupy, dtype, B, H, N, d, tile, seed):
    qkv, dy = numbers(3, B, H, N, d, dtype=dtype, seed=seed), numbers(B, N, H, d, dtype=dtype, seed=seed + 1)
    y, cache = F.tiled_attention(*side_by_side_in(qkv, cupy, dtype), tile=tile)
    gradients = F.tiled_attention_backward(to(cupy, dy, dtype).transpose(0, 2, 1, 3), cache)
    expected, c = F.attention.reference(*qkv)
    wanted = F.attention_backward.reference(dy.transpose(0, 2, 1, 3), c)
    sizes = sizes_of_sums(*qkv, dy.transpose(0, 2, 1, 3), c.probs)
    for got, want, size in zip((y, *gradients), (expected, *wanted), sizes, strict=True):
        assert got.dtype == DTYPE[dtype]
        close(got, want, dtype, size)
    close(cache.probs, c.probs, "float32")
    assert y.transpose(0, 2, 1, 3).flags.c_contiguous and gradients.joined.base is None


@pytest.mark.parametrize("dtype", EPSILON)
@given(
    sides=st.tuples(SIDES, SIDES, TOKENS, TOKENS, st.integers(1, 9), st.integers(1, 9)), tile=TILES,
    kept=st.one_of(st.none(), st.tuples(*[st.booleans()] * 4)), axes=st.integers(0, 4),
    scale=st.one_of(st.none(), st.sampled_from((0.5, 1))), seed=st.integers(0, 99),
)  # fmt: skip
def test_cross_attention_in_tiles_with_a_bias_is_that_of_attention(cupy, dtype, sides, tile, kept, axes, scale, seed):
    B, H, Nq, Nk, d, dv = sides
    q, k, v, dy = (
        numbers(*shape, dtype=dtype, seed=seed + i)
        for i, shape in enumerate(((B, H, Nq, d), (B, H, Nk, d), (B, H, Nk, dv), (B, H, Nq, dv)))
    )
    bias = None
    if kept is not None:
        bias = numbers(*[side if keep else 1 for side, keep in zip((B, H, Nq, Nk), kept)][axes:], seed=seed + 4)
    y, cache = F.tiled_attention(
        *(to(cupy, x, dtype) for x in (q, k, v)), None if bias is None else to(cupy, bias), scale, tile
    )
    gradients = F.tiled_attention_backward(to(cupy, dy, dtype), cache)
    compare_with_the_reference((y, *gradients), q, k, v, bias, scale, dy, dtype)


@pytest.mark.parametrize("dtype", EPSILON)
def test_long_rows_are_processed_by_whole_warps(cupy, dtype):
    """More columns than a warp loads at once, and a partial last pack."""
    q, k, v = numbers(3, 1, 2, 7, 4, dtype=dtype, scale=2), *numbers(2, 1, 2, 301, 4, dtype=dtype, seed=1, scale=2)
    q = q[0]
    y, cache = F.tiled_attention(*(to(cupy, x, dtype) for x in (q, k, v)), tile=150)
    expected, c = F.tiled_attention.reference(q, k, v)
    close(y, expected, dtype)
    np.testing.assert_allclose(cache.largest.get(), c.largest, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(cache.total.get(), c.total, rtol=1e-5)


@pytest.mark.parametrize("dtype", EPSILON)
def test_a_fully_masked_tile_contributes_nothing(cupy, dtype):
    q, k, v, dy = numbers(4, 1, 2, 6, 4, dtype=dtype)
    bias = np.where(np.arange(6) < 4, -INF, 0.0)
    y, cache = F.tiled_attention(*(to(cupy, x, dtype) for x in (q, k, v)), to(cupy, bias), tile=2)
    gradients = F.tiled_attention_backward(to(cupy, dy, dtype), cache)
    expected, c = F.attention.reference(q, k, v, bias)
    *wanted, _ = F.attention_backward.reference(dy, c)
    for got, want in zip((y, *gradients[:3]), (expected, *wanted), strict=True):
        close(got, want, dtype)


def test_scores_far_beyond_the_range_of_exp_do_not_overflow(cupy):
    q, k, v = numbers(3, 1, 1, 9, 4, scale=30)
    y, _ = F.tiled_attention(to(cupy, q), to(cupy, k), to(cupy, v), tile=4)
    close(y, F.attention.reference(q, k, v)[0], "float32", largest=300)  # scores of 2000 are off by 1e-4 themselves


def test_a_tile_takes_no_more_than_its_bytes_and_a_very_large_batch_goes_in_parts(cupy, monkeypatch):
    for B, H in ((1, 1), (1, 12), (64, 12), (1024, 12), (8192, 16)):
        samples, side = sizes_of_tile(B, H, TILE)
        assert side % 64 == 0 and 4 * samples * H * side * side <= tiled_attention.TILE_BYTES
        assert 8 * samples * H * side * side > tiled_attention.TILE_BYTES / 4 or samples == B
    monkeypatch.setattr(tiled_attention, "TILE_BYTES", 4 * 3 * 64 * 64 * 2)  # two samples of three heads
    q, k, v, dy = numbers(4, 5, 3, 6, 2)
    assert sizes_of_tile(5, 3, TILE) == (2, 64)
    y, cache = F.tiled_attention(*(to(cupy, x) for x in (q, k, v)))
    expected, c = F.attention.reference(q, k, v)
    wanted = F.attention_backward.reference(dy, c)
    for got, want in zip((y, *F.tiled_attention_backward(to(cupy, dy), cache)), (expected, *wanted), strict=True):
        close(got, want, "float32")


@pytest.mark.parametrize("dtype", EPSILON)
def test_memory_grows_with_the_tokens_and_not_with_their_square(cupy, monkeypatch, dtype):
    sizes, empty = [], cupy.empty
    monkeypatch.setattr(cupy, "empty", lambda shape, dtype: (sizes.append(np.prod(shape)), empty(shape, dtype))[1])
    q, k, v = side_by_side_in(numbers(3, 1, 1, 64, 2, dtype=dtype), cupy, dtype)
    y, cache = F.tiled_attention(q, k, v, tile=8)
    F.tiled_attention_backward(y, cache)
    assert max(sizes) <= 64 * 3 * 2


@pytest.mark.parametrize("dtype", LOW)
def test_cases_without_a_kernel_run_in_float32_and_return_the_input_dtype(cupy, dtype):
    q, k, v, dy = (to(cupy, x, dtype) for x in numbers(4, 0, 2, 3, 4, dtype=dtype))
    y, cache = F.tiled_attention(q, k, v)
    assert y.dtype == DTYPE[dtype] and type(cache) is TiledAttentionCache and cache.q.dtype == "float32"
    assert [g.dtype for g in F.tiled_attention_backward(dy, cache)] == [DTYPE[dtype]] * 3


def test_a_backward_takes_the_cache_of_the_reference(cupy):
    q, k, v, dy = (to(cupy, x) for x in numbers(4, 2, 3, 5, 4))
    with tinyvit.reference():
        _, cache = F.tiled_attention(q, k, v, tile=2)
        wanted = F.tiled_attention_backward(dy, cache)
    for got, want in zip(F.tiled_attention_backward(dy, cache), wanted, strict=True):
        close(got, want.get(), "float32")


def test_bad_input_is_refused_as_by_the_reference(cupy):
    q, k, v, dy = (to(cupy, x) for x in numbers(4, 2, 3, 5, 4))
    with pytest.raises(ValueError, match="expected a tile of at least 1 token, got 0"):
        F.tiled_attention(q, k, v, tile=0)
    with pytest.raises(ValueError, match="expected q"):
        F.tiled_attention(q, k[:, :2], v)
    _, cache = F.tiled_attention(*(x.astype("float16") for x in (q, k, v)))
    with pytest.raises(ValueError, match="expected dy in float16, like the queries, got float32"):
        F.tiled_attention_backward(dy, cache)


@pytest.mark.parametrize("dtype", EPSILON)
def test_tiled_attention_has_the_same_bits_in_any_order_of_the_threads(cupy, any_order, dtype):
    y, cache = F.tiled_attention(*side_by_side_in(numbers(3, 2, 3, 11, 4, dtype=dtype), cupy, dtype), tile=5)
    F.tiled_attention_backward(y, cache)
