import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import heads, normals, seeds

from tinyvit import functional as F
from tinyvit import gradcheck, kernels
from tinyvit.functional.heads import empty_gradients


@given(x=normals((2, 5, 24), dtype="float64"), parts=st.integers(1, 3), seed=seeds())
def test_split_heads_gradients_match_the_complex_step(x, parts, seed):
    split = gradcheck.stack_results(F.split_heads)
    report = gradcheck.check(split, F.split_heads_backward, (*x, 4, parts), seed=seed)
    assert report.max_error < 1e-10, report


@given(qkv=heads(), seed=seeds())
def test_merge_heads_gradients_match_the_complex_step(qkv, seed):
    report = gradcheck.check(F.merge_heads, F.merge_heads_backward, qkv[:1], seed=seed)
    assert report.max_error < 1e-10, report


def test_a_head_has_its_own_columns_of_queries_keys_and_values():
    x = np.arange(2 * 5 * 24.0).reshape(2, 5, 24)
    (q, k, v), _ = F.split_heads(x, 4)
    for part, columns in ((q, x[..., :8]), (k, x[..., 8:16]), (v, x[..., 16:])):
        assert part.shape == (2, 4, 5, 2) and not part.flags.c_contiguous, "a view"
        np.testing.assert_array_equal(part[:, 1], columns[..., 2:4])
        np.testing.assert_array_equal(F.merge_heads(part)[0], columns)


@pytest.mark.parametrize("level", kernels.available())
@pytest.mark.parametrize("bias", [None, np.zeros((5, 5), "float32")])
def test_the_gradients_of_attention_become_one_array_without_a_copy(level, bias):
    x = np.random.default_rng(0).standard_normal((2, 5, 24), "float32")
    with kernels.using(level):
        (q, k, v), cache = F.split_heads(x, 4)
        y, c_attention = F.attention(q, k, v, bias)
        gradients = F.attention_backward(y, c_attention)
        dx = F.split_heads_backward(gradients, cache)
    dq, dk, dv = gradients[:3]
    np.testing.assert_array_equal(dx, np.concatenate([F.merge_heads(part)[0] for part in (dq, dk, dv)], axis=2))
    assert np.shares_memory(dx, dq) == (level != "reference"), "the reference implementation makes an array for each"


def test_gradients_of_unequal_shapes_are_arrays_of_their_own():
    q, k = np.ones((2, 3, 5, 4)), np.ones((2, 3, 6, 4))
    gradients = empty_gradients(q, k, k)
    assert gradients.joined is None and [g.shape for g in gradients] == [q.shape, k.shape, k.shape]


@pytest.mark.parametrize("shape, num_heads", [((2, 5, 25), 4), ((5, 24), 4), ((2, 5, 24), 0)])
def test_tokens_that_cannot_be_cut_into_heads_are_refused(shape, num_heads):
    with pytest.raises(ValueError, match="split_heads: expected x"):
        F.split_heads(np.ones(shape), num_heads)


def test_heads_without_four_axes_are_refused():
    with pytest.raises(ValueError, match=r"merge_heads: expected x \(B, H, N, d\), got \(5, 24\)"):
        F.merge_heads(np.ones((5, 24)))
