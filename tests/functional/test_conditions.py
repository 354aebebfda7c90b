"""The time and the class as vectors."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import seeds

from tinyvit import functional as F
from tinyvit import gradcheck


@given(t=st.lists(st.integers(0, 999), min_size=1, max_size=4), half=st.integers(1, 6))
def test_a_time_is_cosines_then_sines_of_falling_frequencies(t, half):
    found = F.timestep_embedding(np.array(t), 2 * half)
    angles = np.array(t)[:, None] * [10_000 ** (-i / half) for i in range(half)]
    np.testing.assert_allclose(found, np.concatenate([np.cos(angles), np.sin(angles)], 1), atol=1e-12)


def test_no_two_times_have_the_same_vector():
    vectors = F.timestep_embedding(np.arange(1000))
    assert vectors.shape == (1000, 256)
    assert (vectors @ vectors.T / 128)[~np.eye(1000, dtype=bool)].max() < 0.9999


@given(labels=st.lists(st.integers(0, 4), min_size=1, max_size=9), D=st.integers(1, 4), seed=seeds())
def test_gradients_of_the_table_match_the_complex_step(labels, D, seed):
    weight, labels = np.random.default_rng(seed).standard_normal((5, D)), np.array(labels)
    report = gradcheck.check(F.embed_labels, F.embed_labels_backward, (weight, labels), seed=seed)
    assert report.max_error < 1e-10, report


@given(labels=st.lists(st.integers(0, 3), min_size=1, max_size=40), seed=seeds())
def test_the_gradient_is_the_sum_over_a_class_and_has_the_same_bits_each_time(labels, seed):
    labels = np.array(labels)
    dy = np.random.default_rng(seed).standard_normal((len(labels), 3)).astype("float32")
    rows, cache = F.embed_labels(np.zeros((4, 3), "float32"), labels)
    dweight = F.embed_labels_backward(dy, cache)
    expected = np.zeros((4, 3), "float32")
    np.add.at(expected, labels, dy)
    np.testing.assert_allclose(dweight, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(F.embed_labels_backward(dy, cache), dweight)
    assert rows.shape == dy.shape


weight = np.ones((3, 2))


@pytest.mark.parametrize("table, labels, message", [
    (weight, np.array([0, 3]), "embed_labels: expected labels from 0 to 2, got 0 to 3"),
    (weight, np.array([-1, 1]), "expected labels from 0 to 2, got -1 to 1"),
    (weight, np.array([0.0]), r"expected labels \(B,\) as an array of ints, got float64 \(1,\)"),
    (weight, np.array([[0]]), r"got int64 \(1, 1\)"),
    (weight[0], np.array([0]), r"expected a table \(K, D\), got \(2,\)"),
])  # fmt: skip
def test_labels_that_are_none_are_refused(table, labels, message):
    with pytest.raises(ValueError, match=message):
        F.embed_labels(table, labels)


@pytest.mark.parametrize("t, dim, message", [
    (np.array([1]), 5, "expected an even width, half cosines and half sines, got 5"),
    (np.array([[1]]), 4, r"expected times \(B,\), got \(1, 1\)"),
    (3, 4, "got int"),
])  # fmt: skip
def test_times_that_are_none_are_refused(t, dim, message):
    with pytest.raises(ValueError, match=f"timestep_embedding: .*{message}"):
        F.timestep_embedding(t, dim)
