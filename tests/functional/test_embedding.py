"""Numbers of words into vectors."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import seeds

from tinyvit import functional as F
from tinyvit import gradcheck


@st.composite
def tables(draw):
    """A table (V, D) and an index (B, T)."""
    generator = np.random.default_rng(draw(seeds()))
    V, D, B, T = (draw(st.integers(1, most)) for most in (5, 4, 3, 9))
    return generator.standard_normal((V, D)), generator.integers(0, V, (B, T))


@given(drawn=tables(), seed=seeds())
def test_gradients_match_the_complex_step(drawn, seed):
    weight, index = drawn
    report = gradcheck.check(lambda x: F.embedding(x, index), F.embedding_backward, (weight,), seed=seed)
    assert report.max_error < 1e-10, report


@given(drawn=tables(), seed=seeds())
def test_it_is_the_product_with_one_hot_vectors_and_so_is_its_gradient(drawn, seed):
    weight, index = drawn
    one_hot = np.eye(len(weight))[index]                                       # (B, T, V)
    y, cache = F.embedding(weight, index)
    np.testing.assert_array_equal(y, one_hot @ weight)
    dy = np.random.default_rng(seed).standard_normal(y.shape)
    expected = np.einsum("btv,btd->vd", one_hot, dy)
    np.testing.assert_allclose(F.embedding_backward(dy, cache), expected, rtol=1e-12, atol=1e-13)


def test_the_gradient_of_a_word_that_stands_everywhere_keeps_its_digits_in_float32():
    dy = np.random.default_rng(0).random((100, 100, 1), "float32")
    _, cache = F.embedding(np.zeros((3, 1), "float32"), np.ones((100, 100), int))
    found = F.embedding_backward(dy, cache)
    np.testing.assert_allclose(found[1], dy.sum(dtype="float64"), rtol=3e-7)
    assert found.dtype == "float32" and not found[[0, 2]].any()


def test_no_texts_have_no_gradient():
    y, cache = F.embedding(np.ones((3, 2)), np.zeros((0, 4), int))
    assert y.shape == (0, 4, 2)
    np.testing.assert_array_equal(F.embedding_backward(y, cache), np.zeros((3, 2)))


@pytest.mark.parametrize("index, message", [
    (np.array([[0, 3]]), "an index from 0 to 2, got 0 to 3"),
    (np.array([[-1, 0]]), "an index from 0 to 2, got -1 to 0"),
    (np.array([0, 1]), r"an index \(B, T\) of ints, got \(3, 2\) and int64 \(2,\)"),
    (np.array([[0.0]]), r"got \(3, 2\) and float64 \(1, 1\)"),
])  # fmt: skip
def test_an_index_that_does_not_fit_is_refused(index, message):
    with pytest.raises(ValueError, match=f"embedding: expected .*{message}"):
        F.embedding.reference(np.ones((3, 2)), index)
