import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import heads, laid_out, seeds

import tinyvit
from tinyvit import functional as F
from tinyvit import gradcheck

TILES = st.integers(1, 6)
INF = float("inf")


@st.composite
def heads_and_bias(draw, dtype="float64"):
    """Queries, keys, values, and no bias or one that broadcasts to the scores, with any number of axes."""
    q, k, v = draw(heads(dtype=dtype))
    if draw(st.booleans()):
        return q, k, v, None
    sides = tuple(draw(st.sampled_from([1, side])) for side in (*q.shape[:3], k.shape[2]))[draw(st.integers(0, 4)) :]
    bias = np.asarray(np.random.default_rng(draw(seeds())).standard_normal(sides)).astype(dtype)
    return q, k, v, laid_out(bias, "contiguous")


def run(operation, q, k, v, bias=None, **options):
    """Result and gradients, with gradients that come in read-only."""
    y, cache = operation(q, k, v, bias, **options)
    dy = laid_out(np.random.default_rng(0).standard_normal(y.shape).astype(y.dtype), "contiguous")
    return y, *operation.backward(dy, cache)


def assert_same(got, expected, tolerance):
    for x, want in zip(got, expected, strict=True):
        np.testing.assert_allclose(x, want, rtol=tolerance, atol=tolerance, strict=True)


@given(inputs=heads_and_bias(), tile=TILES, scale=st.sampled_from([None, 0.3, 2.0]))
def test_tiled_attention_and_its_gradients_are_those_of_attention(inputs, tile, scale):
    expected = run(F.attention, *inputs, scale=scale)
    assert_same(run(F.tiled_attention, *inputs, scale=scale, tile=tile), expected, 1e-12)


@given(inputs=heads_and_bias(dtype="float32"), tile=TILES)
def test_in_float32_it_differs_from_attention_by_rounding(inputs, tile):
    assert_same(run(F.tiled_attention, *inputs, tile=tile), run(F.attention, *inputs), 1e-5)


@pytest.mark.parametrize("tile", [1, 3, 16, 33, 300])
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128"])
def test_the_result_depends_on_the_tile_by_rounding_only(tile, dtype):
    generator = np.random.default_rng(0)
    q, k, v, bias = (
        generator.standard_normal(shape).astype(dtype)
        for shape in [(2, 3, 33, 8), (2, 3, 21, 8), (2, 3, 21, 5), (3, 33, 21)]
    )
    tolerance = 2e-5 if dtype == "float32" else 1e-12
    assert_same(run(F.tiled_attention, q, k, v, bias, tile=tile), run(F.tiled_attention, q, k, v, bias), tolerance)
    assert_same(run(F.tiled_attention, q, k, v, bias, tile=tile), run(F.attention, q, k, v, bias), tolerance)


@given(inputs=heads_and_bias(), tile=TILES, seed=seeds())
def test_tiled_attention_gradients_match_the_complex_step(inputs, tile, seed):
    q, k, v, bias = inputs
    inputs = (q, k, v, None if bias is None else np.atleast_1d(bias), None, tile)
    report = gradcheck.check(F.tiled_attention, F.tiled_attention_backward, inputs, directions=2, seed=seed)
    assert report.max_error < 1e-10, report


@given(inputs=heads_and_bias(), tile=TILES, seed=seeds(), dtype=st.sampled_from(["float32", "float64"]))
def test_scores_of_ten_thousand_give_the_same_as_attention(inputs, tile, seed, dtype):
    q, k, v, _ = inputs
    # Whole numbers, so that the scores are the same whatever order they are added up in.
    q, k = np.rint(4 * q).astype(dtype), np.rint(4 * k).astype(dtype)
    q[..., :1] = np.random.default_rng(seed).choice([-100.0, 100.0], q[..., :1].shape)
    k[..., :1] = np.random.default_rng(seed + 1).choice([-100.0, 100.0], k[..., :1].shape)
    (y, *got), (expected_y, *expected) = (
        run(operation, q, k, v.astype(dtype), scale=1.0, **options)
        for operation, options in [(F.tiled_attention, {"tile": tile}), (F.attention, {})]
    )
    tolerance = 1e-5 if dtype == "float32" else 1e-13
    np.testing.assert_allclose(y, expected_y, rtol=tolerance, atol=tolerance, strict=True)
    assert_same(got, expected, 300 * tolerance)  # differences of numbers of several hundred cancel


@given(inputs=heads(), tile=TILES, seed=seeds())
def test_masked_keys_are_ignored_and_fully_masked_tiles_give_no_nan(inputs, tile, seed):
    q, k, v = inputs
    generator = np.random.default_rng(seed)
    mask = generator.random((*q.shape[:3], k.shape[2])) < 0.6
    mask[..., generator.integers(k.shape[2])] = False  # every query sees one key at least
    bias = np.where(mask, -INF, generator.standard_normal(mask.shape))
    got = run(F.tiled_attention, q, k, v, bias, tile=tile)
    assert all(np.isfinite(x).all() for x in got)
    assert not got[-1][mask].any()
    assert_same(got, run(F.attention, q, k, v, bias), 1e-12)


def test_a_fully_masked_query_gives_zeros_as_in_attention_and_zero_gradients():
    q, k, v = (np.random.default_rng(i).standard_normal((2, 3, 5, 4)) for i in range(3))
    bias = np.zeros((2, 3, 5, 5))
    bias[1, 2, 3] = -INF
    y, dq, dk, dv, dbias = got = run(F.tiled_attention, q, k, v, bias, tile=2)
    assert not y[1, 2, 3].any() and not dq[1, 2, 3].any() and not dbias[1, 2, 3].any() and np.isfinite(dk + dv).all()
    assert_same(got, run(F.attention, q, k, v, bias), 1e-12)


@given(inputs=heads_and_bias(), tile=TILES)
def test_the_cache_gives_the_probabilities(inputs, tile):
    _, cache = F.tiled_attention(*inputs, tile=tile)
    _, expected = F.attention(*inputs)
    np.testing.assert_allclose(cache.probs, expected.probs, rtol=1e-12, atol=1e-12, strict=True)
    assert cache.largest.shape == cache.total.shape == (*inputs[0].shape[:3], 1)


def test_zero_queries_give_an_empty_result():
    q, k = np.ones((2, 3, 0, 4)), np.ones((2, 3, 5, 4))
    y, dq, dk, dv = run(F.tiled_attention, q, k, k)
    assert y.shape == dq.shape == q.shape and not dk.any() and not dv.any()


def peak(operation, tokens, **options):
    """Peak memory in bytes of a forward and backward of the reference implementation, without the inputs."""
    q, k, v, dy = (np.ones((1, 2, tokens, 4), "float32") for _ in range(4))
    tracemalloc.start()
    try:
        with tinyvit.reference():
            _, cache = operation(q, k, v, **options)
            operation.backward(dy, cache)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_memory_grows_linearly_with_the_number_of_tokens_and_that_of_attention_with_its_square():
    def growth(operation):
        """Extra memory of the second doubling of the tokens relative to the first: 2 if linear, 4 if quadratic."""
        small, middle, large = (peak(operation, tokens) for tokens in (1024, 2048, 4096))
        return (large - middle) / (middle - small)

    assert growth(F.tiled_attention) < 2.2
    assert growth(F.attention) > 3.5


def test_no_more_than_a_tile_of_scores_is_in_memory_at_any_time():
    tokens, tile, heads, width = 2048, 64, 2, 4
    array, scores = 4 * heads * tokens * width, 4 * heads * tile * tile
    assert peak(F.tiled_attention, tokens, tile=tile) < 8 * array + 8 * scores < 4 * heads * tile * tokens


def test_a_tile_of_zero_tokens_is_refused():
    with pytest.raises(ValueError, match="a tile of at least 1 token, got 0"):
        F.tiled_attention(*[np.ones((1, 1, 3, 2))] * 3, tile=0)


def test_mismatched_arrays_are_refused_with_their_shapes():
    with pytest.raises(ValueError, match=r"expected q \(B, H, Nq, d\), got \(1, 3, 2\)"):
        F.tiled_attention(*[np.ones((1, 3, 2))] * 3)
    with pytest.raises(ValueError, match="attention: expected q"):
        F.tiled_attention(np.ones((1, 1, 3, 2)), np.ones((1, 1, 3, 4)), np.ones((1, 1, 3, 4)))
    with pytest.raises(ValueError, match=r"the bias \(4, 1, 3, 3\) doesn't broadcast to the scores \(1, 1, 3, 3\)"):
        F.tiled_attention(*[np.ones((1, 1, 3, 2))] * 3, np.ones((4, 1, 3, 3)))
