"""Attention on the device, by each of its kernels, against the reference implementation in float64."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numbers_of import DTYPE, EPSILON, LOW, assert_close, numbers, sizes_of_sums, to

import tinyvit
from tinyvit import Key
from tinyvit import functional as F
from tinyvit.functional.attention import AttentionCache
from tinyvit.functional.sums import sum_to_shape
from tinyvit.functional.tiled_attention import TiledAttentionCache
from tinyvit.kernels.cuda import tensor_attention
from tinyvit.kernels.cuda.fused_attention import FusedAttentionCache
from tinyvit.kernels.cuda.tensor_attention import ROWS, WIDTHS, TensorAttentionCache

SIDES = st.integers(1, 4)
TOKENS = st.integers(1, 9) | st.sampled_from([17, 65, ROWS, ROWS + 5])
HEADS = st.integers(1, 9) | st.sampled_from(WIDTHS)
WITHOUT_SCORES = {"float32": FusedAttentionCache, "bfloat16": TensorAttentionCache, "float16": TensorAttentionCache}


def checked(cupy, arrays, dtype, bias=None, scale=None, operation=F.attention, side_by_side=False, **options):
    """Compare heads and gradients with the reference, run twice with the same bits; returns them and the cache.

    arrays  q (B, H, Nq, d), k, v and dy; side_by_side: as views of one array, as nn.Attention makes them
    """
    *qkv, dy = arrays
    there = [to(cupy, x, dtype) for x in qkv]
    if side_by_side:
        there = to(cupy, np.stack(qkv, 2).transpose(0, 3, 2, 1, 4), dtype).transpose(2, 0, 3, 1, 4)
    our_bias = None if bias is None else to(cupy, bias)
    y, cache = operation(*there, our_bias, scale, **options)
    expected, c = operation.reference(*qkv, bias, scale, **options)
    runs = [(y, *F.attention_backward(to(cupy, dy, dtype), cache)) for _ in range(2)]
    wanted = expected, *operation.backward.reference(dy, c)
    sizes = [*sizes_of_sums(*qkv, dy, c.probs, scale), None][: len(wanted)]
    for i, (got, again, want, size) in enumerate(zip(*runs, wanted, sizes, strict=True)):
        assert got.dtype == (dtype if i < 4 else "float32")
        np.testing.assert_array_equal(got.get(), again.get())
        if size is None:  # a sum over many gradients of scores
            everywhere = operation.reference(*qkv, np.broadcast_to(bias, c.probs.shape), scale, **options)[1]
            *_, dscores = operation.backward.reference(dy, everywhere)
            size = max(1, sum_to_shape(abs(dscores), bias.shape).max())
        assert_close(got, want, dtype, size)
    assert_close(cache.probs, c.probs, dtype)
    return runs[0], cache


def drawn(B, H, Nq, Nk, d, dv, dtype, seed=0):
    shapes = (B, H, Nq, d), (B, H, Nk, d), (B, H, Nk, dv), (B, H, Nq, dv)
    return [numbers(*shape, dtype=dtype, seed=seed + i) for i, shape in enumerate(shapes)]


@pytest.mark.parametrize("dtype", EPSILON)
@given(
    sides=st.tuples(SIDES, SIDES, TOKENS, TOKENS, HEADS), dv=st.none() | HEADS, seed=st.integers(0, 99),
    kept=st.none() | st.tuples(*[st.booleans()] * 4), masked=st.booleans(),
    scale=st.none() | st.sampled_from((0.5, 1, -0.5, 0.0)),
    how=st.sampled_from([(F.attention, {}), (F.attention_dropout, {"rate": 0.3, "key": Key(3)}),
                         (F.tiled_attention, {"tile": 7})]),
)  # fmt: skip
def test_heads_and_all_gradients_are_those_of_the_reference(cupy, dtype, sides, dv, seed, kept, masked, scale, how):
    B, H, Nq, Nk, d = sides
    bias, (operation, options) = None, how
    if kept is not None:
        bias = numbers(*[side if keep else 1 for side, keep in zip((B, H, Nq, Nk), kept)], seed=seed + 4)
        if masked and bias.shape[-1] > 1:
            bias.reshape(-1, Nk)[0] = -np.inf  # this query's row of zeros
    checked(cupy, drawn(*sides, d if dv is None else dv, dtype, seed), dtype, bias, scale, operation, **options)


@pytest.mark.parametrize("dtype", EPSILON)
@pytest.mark.parametrize("width", [5, *WIDTHS])
@pytest.mark.parametrize("N", [17, 65, ROWS + 4])
def test_heads_and_gradients_lie_as_the_layers_around_write_and_read_them(cupy, dtype, width, N):
    (y, *gradients), cache = checked(cupy, drawn(2, 3, N, N, width, width, dtype), dtype, side_by_side=True)
    kernels = (width in WIDTHS and dtype in LOW) or width == 16
    assert type(cache) is (WITHOUT_SCORES[dtype] if kernels else AttentionCache)
    assert y.transpose(0, 2, 1, 3).flags.c_contiguous and len({id(x.base) for x in gradients}) == 1
    if not kernels:
        assert all(stride % 16 == 0 for stride in cache.probs.strides[:3])


@pytest.mark.parametrize("dtype", EPSILON)
def test_few_and_many_rows_and_heads_are_divided_among_blocks(cupy, dtype):
    for sides in ((1, 200, 1, 3), (1, 200, 3, 1), (2, 7, 3, 3), (2, 7, 20, 20), (1, 2, 300, 300), (1, 3, 5, ROWS + 9)):
        checked(cupy, drawn(*sides, 16, 16, dtype), dtype)


@pytest.mark.parametrize("dtype", EPSILON)
@pytest.mark.parametrize("size", [200, -200])
def test_scores_far_from_zero_do_no_harm(cupy, dtype, size):
    q, k, v, dy = numbers(4, 1, 1, 20, 16, dtype=dtype, seed=2)
    checked(cupy, (size + np.round(q), 1 + np.round(k), v, dy), dtype, scale=1.0)  # scores of thousands, exact


@pytest.mark.parametrize("dtype, size", [("float32", 2e19), ("bfloat16", 2.0**64)])
def test_a_product_that_only_the_scale_makes_finite_does_no_harm(cupy, dtype, size):
    q = np.zeros((1, 1, 2, 16))
    q[..., 0] = size  # q kᵀ is beyond float32; q kᵀ · scale is not
    x, dy = to(cupy, q, dtype), to(cupy, numbers(1, 1, 2, 16), dtype)
    _, cache = F.attention(x, x, dy)
    np.testing.assert_array_equal(cache.inverse.get(), 0.5)
    assert all(np.isfinite(x.get().astype("float32")).all() for x in F.attention_backward(dy, cache))


@pytest.mark.parametrize("dtype", EPSILON)
def test_long_sequences_take_kernels_that_write_no_scores_or_tiles_in_float32(cupy, dtype):
    for width, kind in ((16, WITHOUT_SCORES[dtype]), (5, TiledAttentionCache)):
        *_, cache = checked(cupy, drawn(1, 2, 9, 9, width, width, dtype), dtype, operation=F.tiled_attention, tile=4)
        assert type(cache) is kind
    with pytest.raises(ValueError, match="expected a tile of at least 1 token, got 0"):
        F.tiled_attention(cache.q, cache.k, cache.v, tile=0)


def test_only_what_the_cache_keeps_is_as_large_as_the_scores(cupy, monkeypatch):
    """The forward makes the probabilities in place; the backward needs one more array of their size."""
    sizes, empty = [], cupy.empty
    monkeypatch.setattr(cupy, "empty", lambda shape, dtype=float: (sizes.append(shape), empty(shape, dtype))[1])
    x = to(cupy, numbers(2, 9, 3, 3, 4)).transpose(2, 0, 3, 1, 4)
    y, cache = F.attention(*x)
    assert isinstance(cache, AttentionCache) and sizes == [(2, 3, 9, 12), (2, 9, 3, 4)]
    sizes.clear()
    F.attention_backward(y, cache)
    assert sizes == [(2, 9, 3, 3, 4), (2, 3, 9, 12)]


@pytest.mark.parametrize("dtype", LOW)
@pytest.mark.parametrize("shape", [(3, 5, 4), (0, 2, 3, 4)])
def test_cases_without_a_kernel_run_in_float32_and_return_the_input_dtype(cupy, dtype, shape):
    arrays = [to(cupy, x, dtype) for x in numbers(4, *shape, dtype=dtype)]
    y, cache = F.attention(*arrays[:3])
    assert y.dtype == DTYPE[dtype] and cache.probs.dtype == "float32"
    assert [gradient.dtype for gradient in F.attention_backward(arrays[3], cache)] == [DTYPE[dtype]] * 3


def test_odd_cases_in_float32_are_left_to_the_reference(cupy):
    q, k, v, dy = numbers(4, 2, 3, 5, 4)
    y, _ = F.attention(*(to(cupy, x) for x in (q, k, v)), cupy.zeros(5))
    assert y.dtype == "float64"
    np.testing.assert_allclose(y.get(), F.attention.reference(q, k, v, np.zeros(5))[0], rtol=0, atol=1e-6)
    backwards = [to(cupy, x)[:, ::-1, :, ::-1] for x in (q, k, v, dy)]
    with tinyvit.reference():
        y, cache = F.attention(*backwards[:3])
        wanted = y, *F.attention_backward(backwards[3], cache)
    for c in (cache, F.attention(*backwards[:3])[1]):  # that of the reference, too
        for got, want in zip((y, *F.attention_backward(backwards[3], c)), wanted, strict=True):
            assert_close(got, want.get(), "float32")


def test_what_does_not_fit_together_is_refused(cupy):
    q, k, v, dy = (to(cupy, x, "float16") for x in numbers(4, 2, 3, 5, 4))
    with pytest.raises(ValueError, match="expected q"):
        F.attention(q, k[:, :, :3], v)
    with pytest.raises(ValueError, match="doesn't broadcast to the scores"):
        F.attention(q, k, v, bias=to(cupy, numbers(4)))
    with pytest.raises(ValueError, match="expected dy in float16, like the queries, got float32"):
        F.attention_backward(dy.astype("float32"), F.attention(q, k, v)[1])


def test_other_gpus_and_layouts_are_left_to_cublas(cupy, monkeypatch):
    for dtype in EPSILON:
        x = to(cupy, numbers(2, 3, 5, 17), dtype)[..., 1:]  # whose rows don't start on 16 bytes
        assert type(F.attention(x, x, x)[1]) is AttentionCache
    monkeypatch.setattr(tensor_attention, "has_tensor_cores", lambda x: False)
    checked(cupy, drawn(1, 2, 5, 5, 16, 16, "float16"), "float16")
