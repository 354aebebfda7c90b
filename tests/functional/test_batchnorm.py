from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Barrier

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import SIZES, normals, seeds

from tinyvit import functional as F
from tinyvit import gradcheck


@st.composite
def channels_first(draw, dtype="float64"):
    """x (B, C, …) with at least two values per channel, weight (C,) and bias (C,)."""
    B, C, *sides = (draw(SIZES) for _ in range(draw(st.integers(2, 4))))
    sides = sides if B > 1 or np.prod(sides) > 1 else [*sides, 2]
    return draw(normals((B, C, *sides), (C,), (C,), dtype=dtype))


@given(arrays=channels_first(), seed=seeds())
def test_gradients_of_batch_norm_match_the_complex_step(arrays, seed):
    report = gradcheck.check(F.batch_norm, F.batch_norm_backward, arrays, seed=seed)
    assert report.max_error < 1e-10, report


@given(arrays=channels_first(), seed=seeds())
def test_gradients_with_running_statistics_match_the_complex_step(arrays, seed):
    mean, variance = np.random.default_rng(seed).uniform(0.1, 2, (2, arrays[0].shape[1]))
    forward = partial(F.batch_norm_running, mean=mean, variance=variance)
    report = gradcheck.check(forward, F.batch_norm_running_backward, arrays, seed=seed)
    assert report.max_error < 1e-10, report


@given(arrays=channels_first())
def test_statistics_of_the_batch_are_its_mean_and_unbiased_variance(arrays):
    _, cache = F.batch_norm(*arrays)
    others = tuple(axis for axis in range(arrays[0].ndim) if axis != 1)
    np.testing.assert_allclose(cache.mean, arrays[0].mean(others), atol=1e-14)
    np.testing.assert_allclose(cache.variance, arrays[0].var(others, ddof=1), atol=1e-14)


@given(arrays=channels_first())
def test_running_statistics_equal_to_those_of_the_batch_give_what_training_gives(arrays):
    expected, cache = F.batch_norm(*arrays)
    biased = cache.variance * ((cache.count - 1) / cache.count)
    np.testing.assert_allclose(F.batch_norm_running(*arrays, cache.mean, biased)[0], expected, atol=1e-12)


def in_parts(pieces, function):
    """[function(i, join)] for as many threads, each with the join of their batch."""
    barrier, values = Barrier(pieces), {}

    def join_of(i):
        calls = iter(range(100))

        def join(value):
            call = next(calls)
            values[call, i] = value
            barrier.wait(60)
            return [values[call, other] for other in range(pieces)]

        return join

    with ThreadPoolExecutor(pieces) as pool:
        return list(pool.map(lambda i: function(i, join_of(i)), range(pieces)))


@given(seed=seeds(), pieces=st.integers(2, 4))
def test_parts_of_a_batch_that_are_joined_are_normalised_as_the_whole(seed, pieces):
    """In parts of unequal size, one of them a single value: alone it could not be normalised."""
    generator = np.random.default_rng(seed)
    x, dy = 5 + generator.standard_normal((2, 9, 3, 1))
    weight, bias = generator.standard_normal((2, 3))
    expected, whole = F.batch_norm(x, weight, bias)
    dx, dweight, dbias = F.batch_norm_backward(dy, whole)
    edges = [*[0, 1, 3, 6][:pieces], 9]

    def run(i, join):
        part = slice(edges[i], edges[i + 1])
        y, cache = F.batch_norm(x[part], weight, bias, join=join)
        return y, *F.batch_norm_backward(dy[part], cache), cache.mean, cache.variance

    y, dx_parts, dweights, dbiases, means, variances = zip(*in_parts(pieces, run))
    same = partial(np.testing.assert_allclose, rtol=1e-12, atol=1e-12)
    same(np.concatenate(y), expected)
    same(np.concatenate(dx_parts), dx)
    same(sum(dweights), dweight)
    same(sum(dbiases), dbias)
    for mean, variance in zip(means, variances):
        np.testing.assert_array_equal(mean, means[0])
        same(mean, whole.mean)
        same(variance, whole.variance)


def test_batch_norm_keeps_its_digits_where_the_mean_is_large():
    x, weight, bias = np.random.default_rng(0).standard_normal((16, 2, 3)), np.ones(2), np.zeros(2)
    expected, _ = F.batch_norm(x, weight, bias)
    np.testing.assert_allclose(F.batch_norm(x + 1e6, weight, bias)[0], expected, atol=1e-8)


@pytest.mark.parametrize("shape", [(1, 3), (1, 3, 1, 1)])
def test_a_single_value_per_channel_is_refused_in_training_and_normalised_with_running_statistics(shape):
    x, ones = np.full(shape, 3.0), np.ones(3)
    with pytest.raises(ValueError, match=r"expected more than one value per channel in training, got x \(1, 3"):
        F.batch_norm(x, ones, ones)
    y, _ = F.batch_norm_running(x, ones, ones, 2 * ones, 4 * ones, eps=0.0)
    np.testing.assert_array_equal(y, np.full(shape, 1.5))


EMPTY, UNEQUAL = ((0, 5), (5,), (5,)), [((2, 5), (1,), (5,)), ((2, 5), (5,), (1,))]


@pytest.mark.parametrize("shapes", [((5,), (5,), (5,)), *UNEQUAL, EMPTY])
def test_batch_norm_refuses_to_broadcast_and_an_empty_batch(shapes):
    with pytest.raises(ValueError, match=r"batch_norm: expected x \(B, C, …\), not empty"):
        F.batch_norm(*map(np.ones, shapes))


def test_running_statistics_of_another_number_of_channels_are_refused():
    with pytest.raises(ValueError, match=r"batch_norm_running: expected variance \(3,\), got \(1,\)"):
        F.batch_norm_running(np.ones((2, 3)), np.ones(3), np.ones(3), np.ones(3), np.ones(1))
