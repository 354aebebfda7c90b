import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import heads, normals, seeds

from tinyvit import Key, gradcheck
from tinyvit import functional as F


@given(qkv=heads(), biased=st.booleans(), scale=st.sampled_from([None, 0.3]), seed=seeds())
def test_attention_gradients_match_the_complex_step(qkv, biased, scale, seed):
    q, k, _ = qkv
    bias = np.random.default_rng(seed).standard_normal((*q.shape[:3], k.shape[2])) if biased else None
    inputs = (*qkv, bias, scale)
    report = gradcheck.check(F.attention, F.attention_backward, inputs, directions=2, seed=seed)
    assert report.max_error < 1e-10, report


@pytest.mark.parametrize("shape", [(2, 3, 5, 4), (1, 3, 5, 4), (2, 1, 5, 4), (3, 5, 4), (3, 1, 4), (5, 1), (4,), (1,)])
def test_a_bias_that_broadcasts_gets_its_gradient(shape):
    generator = np.random.default_rng(0)
    qkv = [generator.standard_normal(s) for s in [(2, 3, 5, 6), (2, 3, 4, 6), (2, 3, 4, 7)]]
    report = gradcheck.check(F.attention, F.attention_backward, (*qkv, generator.standard_normal(shape)))
    assert report.max_error < 1e-10, report


@given(arrays=normals(*[(2, 3, 5, 4)] * 3, dtype="float64"), seed=seeds())
def test_attention_is_equivariant_to_a_permutation_of_tokens(arrays, seed):
    q, k, v = arrays
    order = np.random.default_rng(seed).permutation(5)
    expected = F.attention(q, k, v)[0][:, :, order]
    np.testing.assert_allclose(F.attention(q[:, :, order], k[:, :, order], v[:, :, order])[0], expected, atol=1e-13)


@given(qkv=heads())
def test_attention_does_not_see_the_order_of_its_keys(qkv):
    q, k, v = qkv
    np.testing.assert_allclose(F.attention(q, k[:, :, ::-1], v[:, :, ::-1])[0], F.attention(q, k, v)[0], atol=1e-13)


@given(qkv=heads())
def test_every_query_takes_an_average_of_the_values(qkv):
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
