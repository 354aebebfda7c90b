"""Similarities of images and texts, and the loss that pulls pairs together."""

from functools import partial
from math import log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import seeds

from tinyvit import functional as F
from tinyvit import gradcheck

LN_100 = log(100)


@st.composite
def logits(draw):
    B = draw(st.integers(1, 6))
    return 3 * np.random.default_rng(draw(seeds())).standard_normal((B, B))


@given(z=logits(), seed=seeds())
def test_gradients_of_the_loss_match_the_complex_step(z, seed):
    texts = np.random.default_rng(seed).integers(0, 3, len(z))
    for alike in (None, texts[:, None] == texts):
        report = gradcheck.check(partial(F.contrastive_loss, alike=alike), F.contrastive_loss_backward, (z,), seed=seed)
        assert report.max_error < 1e-10, report


@given(z=logits())
def test_the_loss_is_the_mean_of_both_cross_entropies(z):
    labels = np.arange(len(z))
    of_images, of_texts = (F.cross_entropy(x, labels)[0] for x in (z, np.ascontiguousarray(z.T)))
    np.testing.assert_allclose(F.contrastive_loss(z)[0], 0.5 * (of_images + of_texts), rtol=1e-13, atol=1e-15)


@given(z=logits(), seed=seeds())
def test_the_loss_is_symmetric_and_invariant_to_one_permutation_of_the_pairs(z, seed):
    loss, cache = F.contrastive_loss(z)
    np.testing.assert_allclose(F.contrastive_loss(z.T)[0], loss, rtol=1e-13, atol=1e-15)
    order = np.random.default_rng(seed).permutation(len(z))
    permuted, c_permuted = F.contrastive_loss(z[order][:, order])
    np.testing.assert_allclose(permuted, loss, rtol=1e-13, atol=1e-15)
    gradient = F.contrastive_loss_backward(1.0, cache)
    np.testing.assert_allclose(F.contrastive_loss_backward(1.0, c_permuted), gradient[order][:, order], atol=1e-15)


def test_permuting_the_texts_alone_changes_the_loss():
    z = 5 * np.eye(3)
    assert F.contrastive_loss(z[:, [1, 2, 0]])[0] > F.contrastive_loss(z)[0] + 1


@given(B=st.integers(1, 8), seed=seeds())
def test_where_all_are_alike_the_loss_is_log_B_and_a_pair_alone_has_none(B, seed):
    np.testing.assert_allclose(F.contrastive_loss(np.full((B, B), 3.0))[0], log(B), atol=1e-14)
    z = np.random.default_rng(seed).standard_normal((1, 1))
    loss, cache = F.contrastive_loss(z)
    assert loss == 0 and not F.contrastive_loss_backward(1.0, cache).any()


@given(z=logits())
def test_each_row_and_column_of_the_gradient_pulls_one_pair_together_and_the_others_apart(z):
    gradient = F.contrastive_loss_backward(1.0, F.contrastive_loss(z)[1])
    assert (np.diag(gradient) <= 0).all()
    assert (gradient - np.diag(np.diag(gradient)) >= 0).all()
    np.testing.assert_allclose(gradient.sum(), 0, atol=1e-14)


@given(B=st.integers(1, 4), K=st.integers(1, 4), D=st.integers(1, 5), seed=seeds())
def test_gradients_of_similarities_match_the_complex_step(B, K, D, seed):
    generator = np.random.default_rng(seed)
    images, texts = generator.standard_normal((B, D)), generator.standard_normal((K, D))
    report = gradcheck.check(F.similarity, F.similarity_backward, (images, texts, generator.standard_normal(1)))
    assert report.max_error < 1e-10, report


def test_a_number_without_dimensions_will_do_as_logit_scale_and_so_will_its_gradient():
    images, texts = np.eye(3), np.eye(3)[:2]
    y, cache = F.similarity(images, texts, np.array(0.5))
    np.testing.assert_allclose(y, np.exp(0.5) * np.eye(3)[:, :2])
    dscale = F.similarity_backward(np.ones((3, 2)), cache)[2]
    assert dscale.shape == ()
    np.testing.assert_allclose(dscale, 2 * np.exp(0.5))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_cosines_are_multiplied_by_100_at_most_and_beyond_it_the_scale_gets_no_gradient(dtype):
    images = texts = np.eye(2, dtype=dtype)
    for scale, factor, moves in ((LN_100, 100, True), (LN_100 + 0.1, 100, False), (1e4, 100, False)):
        y, cache = F.similarity(images, texts, np.array([scale], dtype))
        np.testing.assert_allclose(np.diag(y), factor, rtol=1e-6)
        dscale = F.similarity_backward(np.ones((2, 2), dtype), cache)[2]
        assert (dscale != 0).all() == moves and dscale.dtype == dtype


@pytest.mark.parametrize("z", [np.ones((2, 3)), np.ones(3), np.ones((0, 0))])
def test_logits_that_are_not_of_pairs_are_refused(z):
    with pytest.raises(ValueError, match=r"contrastive_loss: expected logits \(B, B\) of at least one pair, got"):
        F.contrastive_loss(z)


@pytest.mark.parametrize("images, texts, scale", [
    (np.ones((2, 3)), np.ones((2, 4)), np.ones(1)), (np.ones(3), np.ones((2, 3)), np.ones(1)),
    (np.ones((2, 3)), np.ones((2, 3)), np.ones(2)),
])  # fmt: skip
def test_vectors_of_other_spaces_and_several_scales_are_refused(images, texts, scale):
    with pytest.raises(ValueError, match=r"similarity: expected images \(B, D\), texts \(K, D\) and one number"):
        F.similarity(images, texts, scale)
