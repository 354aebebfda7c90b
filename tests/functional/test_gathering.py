"""A loss that mixes samples, computed in parts that gather them, has the gradients of the whole."""

from functools import partial

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from strategies import seeds

from tinyvit import functional as F
from tinyvit import gradcheck
from tinyvit.training.meeting import Meeting
from tinyvit.training.threads import map_threads, slices


def contrastive(x, join=None):
    """The mean over the rows of x of the cross-entropy of its products with all rows, where its own is right."""
    everyone, c_gather = F.gather_batch(x, join)
    loss, c_loss = F.cross_entropy(x @ everyone.T, np.arange(len(everyone))[c_gather.where])
    return loss, (x, everyone, c_gather, c_loss)


def contrastive_backward(dy, cache):
    x, everyone, c_gather, c_loss = cache
    dscores = F.cross_entropy_backward(dy, c_loss)
    return dscores @ everyone + F.gather_batch_backward(dscores.T @ x, c_gather)


def test_the_whole_batch_is_its_own_gathering():
    x = np.random.default_rng(0).standard_normal((5, 3))
    y, cache = F.gather_batch(x)
    np.testing.assert_array_equal(y, x)
    assert cache.where == slice(0, 5)
    report = gradcheck.check(contrastive, contrastive_backward, (x,))
    assert report.max_error < 1e-10, report


@given(samples=st.integers(2, 9), parts=st.integers(2, 4), seed=seeds())
def test_parts_that_gather_have_the_loss_and_the_gradients_of_the_whole_batch(samples, parts, seed):
    x = np.random.default_rng(seed).standard_normal((samples, 3))
    loss, cache = contrastive(x)
    where = slices(samples, parts)
    meeting = Meeting(len(where))

    def run(number):
        part = where[number]
        share = (part.stop - part.start) / samples
        own, c_own = contrastive(x[part], partial(meeting.exchange, number))
        return share * own, contrastive_backward(share, c_own)

    found = map_threads(run, range(len(where)), len(where), meeting=meeting)
    np.testing.assert_allclose(sum(own for own, _ in found), loss, rtol=1e-12)
    np.testing.assert_allclose(
        np.concatenate([dx for _, dx in found]), contrastive_backward(1.0, cache), rtol=1e-10, atol=1e-12
    )  # fmt: skip


def test_equal_rows_in_other_parts_are_told_apart():
    meeting = Meeting(3)

    def run(number):
        return F.gather_batch(np.ones((2, 1)), partial(meeting.exchange, number))[1].where

    assert map_threads(run, range(3), 3, meeting=meeting) == [slice(0, 2), slice(2, 4), slice(4, 6)]
