import numpy as np
import pytest

from tinyvit import functional as F
from tinyvit.functional.attention import AttentionCache
from tinyvit.kernels.fast import attention


@pytest.mark.parametrize(
    ("queries", "keys", "tile"), [(65, 65, 65), (65, 65, 64), (65, 65, 20), (7, 30, 1), (30, 7, 4)]
)
def test_the_result_does_not_depend_on_the_tile(queries, keys, tile, monkeypatch):
    generator = np.random.default_rng(0)
    q, k, v, dy = (generator.standard_normal((2, 3, tokens, 8), "float32") for tokens in (queries, keys, keys, queries))
    monkeypatch.setattr(attention, "tile_for", lambda Nq, Nk: tile)
    y, cache = F.attention(q, k, v)
    exact, exact_cache = F.attention.reference(*(x.astype("float64") for x in (q, k, v)))
    np.testing.assert_allclose(y, exact, rtol=2e-6, atol=2e-6)
    expected = F.attention_backward.reference(dy.astype("float64"), exact_cache)
    for got, want in zip(F.attention_backward(dy, cache), expected, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shape", [(2, 3, 65, 30), (3, 65, 1), (65, 30), (2, 1, 1, 30)])
def test_the_gradient_of_a_bias_does_not_depend_on_the_tile(shape, monkeypatch):
    generator = np.random.default_rng(0)
    q, k, v, dy = (generator.standard_normal((2, 3, tokens, 8), "float32") for tokens in (65, 30, 30, 65))
    bias = generator.standard_normal(shape, "float32")
    expected = F.attention_backward(dy, F.attention(q, k, v, bias)[1])
    monkeypatch.setattr(attention, "tile_for", lambda Nq, Nk: 20)
    for got, want in zip(F.attention_backward(dy, F.attention(q, k, v, bias)[1]), expected, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("queries", "keys", "expected"), [(65, 65, 65), (1025, 1025, 255), (5000, 4097, 128), (9, 10**6, 9)]
)
def test_tiles_are_as_large_as_the_cache_and_not_too_thin(queries, keys, expected):
    assert attention.tile_for(queries, keys) == expected


def test_tiled_attention_is_the_same_kernel():
    q, k, v, dy = np.random.default_rng(0).standard_normal((4, 1, 2, 30, 4), "float32")
    (y, cache), (expected, expected_cache) = F.tiled_attention(q, k, v, tile=7), F.attention(q, k, v)
    np.testing.assert_array_equal(y, expected)
    gradients = F.tiled_attention_backward(dy, cache), F.attention_backward(dy, expected_cache)
    for got, want in zip(*gradients, strict=True):
        np.testing.assert_array_equal(got, want)
    with pytest.raises(ValueError, match="a tile of at least 1 token, got 0"):
        F.tiled_attention(q, k, v, tile=0)
    assert not isinstance(cache, AttentionCache)


@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (2, 1, 3, 1), (1, 2, 1, 3)])
def test_arrays_with_axes_of_length_1_and_any_strides_are_read_correctly(shape):
    roomy = np.random.default_rng(0).standard_normal((3, *(2 * side for side in shape)), "float32")
    q, k, v = (x[tuple(slice(0, 2 * side, 2) for side in shape)] for x in roomy)
    y, cache = F.attention(q, k, v)
    exact, exact_cache = F.attention.reference(q, k, v)
    np.testing.assert_allclose(y, exact, rtol=2e-6, atol=2e-6)
    dy = np.ones_like(roomy[0])[tuple(slice(0, 2 * side, 2) for side in shape)]
    for got, want in zip(F.attention_backward(dy, cache), F.attention_backward.reference(dy, exact_cache)):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
