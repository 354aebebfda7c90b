from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import every_shape_that_broadcasts, heads, normals, seeds

from tinyvit import Key, gradcheck, kernels
from tinyvit import functional as F


@given(qkv=heads(), biased=st.booleans(), scale=st.sampled_from([None, 0.3]), seed=seeds())
def test_attention_gradients_match_the_complex_step(qkv, biased, scale, seed):
    q, k, _ = qkv
    bias = np.random.default_rng(seed).standard_normal((*q.shape[:3], k.shape[2])) if biased else None
    inputs = (*qkv, bias, scale)
    report = gradcheck.check(F.attention, F.attention_backward, inputs, directions=2, seed=seed)
    assert report.max_error < 1e-10, report


@pytest.mark.parametrize("level", kernels.available())
@pytest.mark.parametrize(
    "operation, options",
    [(F.attention, {}), (F.tiled_attention, {"tile": 3}), (F.attention_dropout, {"rate": 0.3, "key": 1})],
)
def test_a_bias_of_every_shape_that_broadcasts_gets_its_gradient(operation, options, level):
    generator = np.random.default_rng(0)
    qkv = [generator.standard_normal(s) for s in [(2, 3, 5, 6), (2, 3, 4, 6), (2, 3, 4, 7)]]
    shapes = every_shape_that_broadcasts(2, 3, 5, 4)
    assert len(shapes) == 30
    for shape in shapes:
        bias = generator.standard_normal(shape)
        with kernels.using(level):
            report = gradcheck.check(partial(operation, **options), operation.backward, (*qkv, bias), directions=3)
        assert report.max_error < 1e-10, report
    (y, cache), (expected, c) = (operation(*qkv, np.full(shape, 2.0), **options) for shape in ((), (1,)))
    gradients, wanted = operation.backward(y, cache), operation.backward(expected, c)
    assert gradients[3].shape == () and gradients[3] == wanted[3]


@given(qkv=heads(), seed=seeds())
def test_masked_keys_are_ignored(qkv, seed):
    q, k, v = qkv
    seen = np.random.default_rng(seed).random(k.shape[2]) < 0.6
    seen[0] = True
    y, cache = F.attention(q, k, v, np.where(seen, 0.0, -np.inf))
    dq, dk, dv, dbias = F.attention_backward(np.ones_like(y), cache)
    expected, c = F.attention(q, k[:, :, seen], v[:, :, seen])
    wanted = F.attention_backward(np.ones_like(y), c)
    for got, want in zip((y, dq, dk[:, :, seen], dv[:, :, seen]), (expected, *wanted), strict=True):
        np.testing.assert_allclose(got, want, atol=1e-13)
    assert not dk[:, :, ~seen].any() and not dv[:, :, ~seen].any() and not dbias[~seen].any()


def test_windows_that_are_taken_as_heads_have_masks_of_their_own():
    B, W, H, N, d = 2, 3, 4, 5, 6
    generator = np.random.default_rng(0)
    q, k, v, dy = generator.standard_normal((4, B * W, H, N, d))
    positions, masks = generator.standard_normal((H, N, N)), np.triu(np.full((W, 1, N, N), -np.inf), 1)
    masks[1] = 0
    y, c = F.attention(q, k, v, np.tile(positions + masks, (B, 1, 1, 1)))
    *expected, dbias_expected = F.attention_backward(dy, c)
    q, k, v, dy = (x.reshape(B, W * H, N, d) for x in (q, k, v, dy))
    heads, cache = F.attention(q, k, v, (positions + masks).reshape(W * H, N, N))
    *gradients, dbias = F.attention_backward(dy, cache)
    for got, want in zip((heads, *gradients), (y, *expected), strict=True):
        np.testing.assert_allclose(got.reshape(want.shape), want, atol=1e-13)
    summed = dbias_expected.reshape(B, W, H, N, N).sum((0, 1))
    np.testing.assert_allclose(dbias.reshape(W, H, N, N).sum(0), summed, atol=1e-13)


@pytest.mark.parametrize("operation", [F.attention, F.tiled_attention, F.attention_dropout])
def test_a_fully_masked_query_gives_zeros_and_zero_gradients(operation):
    q, k, v = np.random.default_rng(0).standard_normal((3, 2, 3, 5, 4))
    bias = np.zeros((5, 5))
    bias[2] = -np.inf
    with np.errstate(invalid="raise", divide="raise"):
        y, cache = operation(q, k, v, bias)
        dq, dk, dv, dbias = F.attention_backward(np.ones_like(y), cache)
    assert not y[:, :, 2].any() and not dq[:, :, 2].any() and not dbias[2].any() and not cache.probs[:, :, 2].any()
    assert y[:, :, 3].all() and np.isfinite(dk).all() and np.isfinite(dv).all()


@given(qkv=heads(), rate=st.floats(0.1, 0.8), seed=seeds())
def test_one_backward_follows_the_cache_of_whichever_attention_ran(qkv, rate, seed):
    for operation, options in [
        (F.attention, {}), (F.tiled_attention, {"tile": 2}), (F.attention_dropout, {"rate": rate, "key": seed})
    ]:  # fmt: skip
        y, cache = operation(*qkv, **options)
        for got, want in zip(F.attention_backward(y, cache), operation.backward(y, cache), strict=True):
            np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("level", kernels.available())
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_every_cache_has_the_fields_of_the_reference_implementations(level, dtype):
    q, k, v, bias = np.random.default_rng(0).standard_normal((4, 1, 2, 5, 5)).astype(dtype)
    expected = F.attention.reference(q, k, v, bias)[1]._asdict()
    tiled = F.tiled_attention.reference(q, k, v, bias)[1]._asdict() | expected
    del tiled["tile"]  # kernels have tile sizes of their own
    for operation, fields in ((F.attention, expected), (F.tiled_attention, tiled), (F.attention_dropout, expected)):
        with kernels.using(level):
            cache = operation(q, k, v, bias)[1]
        for name, want in fields.items():
            np.testing.assert_allclose(getattr(cache, name), want, rtol=1e-5, atol=1e-6, err_msg=name)
    assert F.tiled_attention(q, k, v)[1].tile >= 1


@given(arrays=normals(*[(2, 3, 5, 4)] * 3, dtype="float64"), seed=seeds())
def test_attention_is_equivariant_to_a_permutation_of_tokens(arrays, seed):
    q, k, v = arrays
    order = np.random.default_rng(seed).permutation(5)
    expected = F.attention(q, k, v)[0][:, :, order]
    np.testing.assert_allclose(F.attention(q[:, :, order], k[:, :, order], v[:, :, order])[0], expected, atol=1e-13)


@given(qkv=heads())
def test_attention_is_invariant_to_a_permutation_of_its_keys(qkv):
    q, k, v = qkv
    np.testing.assert_allclose(F.attention(q, k[:, :, ::-1], v[:, :, ::-1])[0], F.attention(q, k, v)[0], atol=1e-13)


@given(qkv=heads())
def test_every_output_is_a_weighted_average_of_the_values(qkv):
    q, k, v = qkv
    y, cache = F.attention(q, k, v)
    np.testing.assert_allclose(cache.probs.sum(-1), 1, rtol=1e-14)
    assert (y <= v.max(2, keepdims=True) + 1e-12).all() and (y >= v.min(2, keepdims=True) - 1e-12).all()


@given(qkv=heads())
def test_a_query_that_matches_no_key_better_than_another_takes_the_mean(qkv):
    q, k, v = qkv
    mean = np.broadcast_to(v.mean(2, keepdims=True), (*q.shape[:3], v.shape[3]))
    np.testing.assert_allclose(F.attention(0 * q, k, v)[0], mean, atol=1e-14)


@given(qkv=heads(), rate=st.floats(0.1, 0.8), seed=seeds())
def test_attention_dropout_gradients_match_the_complex_step(qkv, rate, seed):
    inputs = (*qkv, None, None, rate, Key(seed))
    report = gradcheck.check(F.attention_dropout, F.attention_dropout_backward, inputs, directions=2)
    assert report.max_error < 1e-10, report


@given(qkv=heads())
def test_attention_dropout_without_a_key_is_attention(qkv):
    np.testing.assert_array_equal(F.attention_dropout(*qkv, rate=0.5)[0], F.attention(*qkv)[0])


@pytest.mark.parametrize(
    "q, k, v",
    [
        ((2, 3, 5, 4), (2, 3, 5, 6), (2, 3, 5, 4)),
        ((2, 3, 5, 4), (2, 3, 5, 4), (2, 3, 6, 4)),
        ((1, 3, 5, 4), (2, 3, 5, 4), (2, 3, 5, 4)),
    ],
)
def test_attention_names_the_shapes_that_do_not_fit(q, k, v):
    with pytest.raises(ValueError, match="attention: expected q"):
        F.attention(np.ones(q), np.ones(k), np.ones(v))


def test_a_bias_that_would_make_the_scores_larger_is_refused():
    with pytest.raises(ValueError, match="doesn't broadcast"):
        F.attention(*[np.ones((1, 1, 3, 2))] * 3, np.ones((4, 1, 3, 3)))


@pytest.mark.parametrize("dtype", ["bool", "int64", "uint8"])
def test_a_boolean_or_integer_mask_is_refused_with_what_to_do(dtype):
    with pytest.raises(ValueError, match=f"got {dtype}; of a mask make one by where"):
        F.attention(*[np.ones((1, 1, 3, 2))] * 3, np.ones((3, 3), dtype))


def test_a_number_as_a_bias_changes_nothing():
    q, k, v = np.random.default_rng(0).standard_normal((3, 2, 3, 5, 4))
    np.testing.assert_allclose(F.attention(q, k, v, 0.5)[0], F.attention(q, k, v)[0], atol=1e-14)


def test_queries_without_a_key_are_refused():
    q, k = np.ones((2, 3, 5, 4)), np.ones((2, 3, 0, 4))
    for operation in (F.attention, F.tiled_attention, F.attention_dropout):
        with pytest.raises(ValueError, match="expected at least one key"):
            operation(q, k, k)
