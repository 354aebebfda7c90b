from contextlib import nullcontext
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numbers_of import EPSILON, numbers, to

from tinyvit import functional as F
from tinyvit.functional.batchnorm import BatchNormCache
from tinyvit.kernels.cuda.source import watching

SIDES = st.lists(st.integers(1, 9), max_size=2).map(tuple) | st.sampled_from([(8, 8), (3, 16), (1, 300)])


def as_right_as_the_reference(cupy, shape, dtype, seed=0, running=False):
    """Compare y, cache and gradients with the reference implementation in float64."""
    x, dy = (3 * numbers(*shape, seed=seed) + 1, numbers(*shape, dtype=dtype, seed=seed + 1))
    x, C = to(cupy, x, dtype).get().astype("float64"), shape[1]
    parameters = [*numbers(2, C, seed=seed + 2)]
    statistics = [numbers(C, seed=seed), abs(numbers(C, seed=seed)) + 0.1] if running else []
    operation = F.batch_norm_running if running else F.batch_norm
    y, cache = operation(to(cupy, x, dtype), *(to(cupy, array) for array in (*parameters, *statistics)))
    gradients = operation.backward(to(cupy, dy, dtype), cache)
    expected, c = operation.reference(x, *parameters, *statistics)
    assert [str(array.dtype) for array in (y, *gradients)] == [dtype, dtype, "float32", "float32"]
    eps = EPSILON[dtype] + 2e-6
    np.testing.assert_allclose(y.get().astype("float64"), expected, rtol=eps, atol=2 * eps)
    for field in {*c._fields} - {"count", "join"}:
        got = getattr(cache, field)
        assert got.dtype == "float32"
        np.testing.assert_allclose(got.get(), getattr(c, field), rtol=2e-6, atol=3e-6)
    # From the same statistics, to compare the backward only: 1 / √(σ² + ε) may be large.
    c = c._replace(xhat=cache.xhat.get().astype("float64"), rstd=cache.rstd.get().astype("float64"))
    wanted = operation.backward.reference(dy, c)
    bounds = (2 * eps, 1e-6 + 4e-6 * abs(wanted[0]).max()), *((1e-5, 1e-5 * max(1, abs(w).max())) for w in wanted[1:])
    for got, want, (rtol, atol) in zip(gradients, wanted, bounds, strict=True):
        np.testing.assert_allclose(got.get().astype("float64"), want, rtol=rtol, atol=atol)


@pytest.mark.parametrize("dtype", EPSILON)
@given(B=st.integers(1, 9), C=st.integers(1, 10), sides=SIDES, seed=st.integers(0, 99), running=st.booleans())
def test_batch_norm_and_its_backward_are_those_of_the_reference(cupy, dtype, B, C, sides, seed, running):
    B += not running and B * np.prod(sides) == 1
    as_right_as_the_reference(cupy, (B, C, *sides), dtype, seed, running)


@pytest.mark.parametrize("running", [False, True])
@pytest.mark.parametrize("shape", [(9, 2, 3, 641), (5, 2, 16, 257), (9001, 1)])
def test_the_pieces_of_a_channel_make_up_the_whole(cupy, shape, running):
    as_right_as_the_reference(cupy, shape, "float32", running=running)


def test_a_step_takes_three_launches_forward_and_three_back(cupy):
    x, weight, bias = to(cupy, numbers(4, 3, 50, 50)), to(cupy, np.ones(3)), to(cupy, np.ones(3))
    launches = []

    def around(name, arrays):
        launches.append(name)
        return nullcontext()

    with watching(around):
        _, cache = F.batch_norm(x, weight, bias)
        F.batch_norm_backward(x, cache, into=(weight, bias))
    assert launches == [
        "batch_norm_moments", "batch_norm_statistics", "batch_norm_forward",
        "channel_sums", "channel_totals", "batch_norm_backward",
    ]  # fmt: skip


@pytest.mark.parametrize("operation", [F.batch_norm, F.batch_norm_running])
@pytest.mark.parametrize("wanted", [(True, True), (True, False), (False, True), (False, False)])
def test_gradients_are_added_into_the_given_arrays_or_left_out(cupy, operation, wanted):
    x, weight, bias, dy = (to(cupy, numbers(*shape)) for shape in ((3, 5, 4), (5,), (5,), (3, 5, 4)))
    _, cache = operation(x, weight, bias, *([bias, weight * weight] if operation is F.batch_norm_running else []))
    dx, *alone = operation.backward(dy, cache)
    into = tuple(to(cupy, np.ones(5)) if want else False for want in wanted)
    again, *parameters = operation.backward(dy, cache, into=into)
    np.testing.assert_array_equal(again.get(), dx.get())
    for got, want, goal, gradient in zip(parameters, wanted, into, alone, strict=True):
        assert got is (goal if want else None)
        if want:
            np.testing.assert_array_equal(got.get(), 1 + gradient.get())


@pytest.mark.parametrize("edges", [(0, 1, 3, 9), (0, 4, 9)])
def test_parts_of_a_batch_that_are_joined_are_normalised_as_the_whole(cupy, edges):
    """Each part is told what the others gave: first nothing of them, to find what they give, then all of it."""
    x, dy = numbers(2, 9, 3, 2)
    x = (x + 1e4).astype("float32").astype("float64")
    weight, bias = numbers(2, 3)
    expected, whole = F.batch_norm.reference(x, weight, bias)
    wanted = F.batch_norm_backward.reference(dy, whole)
    parts = [slice(*pair) for pair in pairwise(edges)]

    def run(part, given):
        join = Exchange(given)
        y, cache = F.batch_norm(to(cupy, x[part]), to(cupy, weight), to(cupy, bias), join=join)
        return join.own, y, cache, F.batch_norm_backward(to(cupy, dy[part]), cache)

    first = [run(part, None)[0][0] for part in parts]
    second = [run(part, [first])[0][1] for part in parts]
    _, y, caches, gradients = zip(*(run(part, [first, second]) for part in parts))
    close = partial(np.testing.assert_allclose, rtol=2e-5, atol=2e-5)
    close(np.concatenate([part.get() for part in y]), expected)
    close(np.concatenate([dx.get() for dx, *_ in gradients]), wanted[0])
    for i in (1, 2):
        close(sum(parameters[i].get() for parameters in gradients), wanted[i])
    for cache in caches:
        assert cache.count == whole.count
        np.testing.assert_array_equal(cache.mean.get(), caches[0].mean.get())
        close(cache.mean.get(), whole.mean, rtol=1e-6)
        close(cache.variance.get(), whole.variance)


class Exchange:
    """A `join` that remembers what its part gave and returns what all parts gave in an earlier run, once known."""

    def __init__(self, given):
        self.given, self.own = given or [], []

    def __call__(self, value):
        self.own.append(value)
        call = len(self.own) - 1
        return self.given[call] if call < len(self.given) else [value, value]


@pytest.mark.parametrize("shape", [(50, 3, 4), (40, 2, 17, 16)])
def test_a_large_mean_costs_no_more_digits_than_it_has_to(cupy, shape):
    x = (1e4 + np.random.default_rng(0).standard_normal(shape)).astype("float32").astype("float64")
    weight, bias, dy = np.ones(shape[1]), np.zeros(shape[1]), numbers(*shape)
    y, cache = F.batch_norm(to(cupy, x), to(cupy, weight), to(cupy, bias))
    expected, c = F.batch_norm.reference(x, weight, bias)
    np.testing.assert_allclose(y.get(), expected, rtol=0, atol=2e-6)
    np.testing.assert_allclose(cache.xhat.get(), expected, rtol=0, atol=2e-6)
    np.testing.assert_allclose(cache.variance.get(), c.variance, rtol=2e-6)
    dx, *_ = F.batch_norm_backward(to(cupy, dy), cache)
    np.testing.assert_allclose(dx.get(), F.batch_norm_backward.reference(dy, c)[0], rtol=0, atol=1e-5)


@pytest.mark.parametrize("dtype", EPSILON)
def test_arrays_in_another_memory_order_are_read_correctly(cupy, dtype):
    x, dy = numbers(2, 6, 4, 16, dtype=dtype)
    weight, bias = numbers(2, 4)
    results = []
    for lie in (lambda a: a, lambda a: a.transpose(2, 1, 0)):  # the second is then turned to the same shape
        arrays = [to(cupy, np.ascontiguousarray(lie(a)), dtype) for a in (x, dy)]
        arrays = [array if lie(x) is x else array.transpose(2, 1, 0) for array in arrays]
        y, cache = F.batch_norm(arrays[0], to(cupy, np.repeat(weight, 2))[::2], to(cupy, bias))
        results.append([y, *F.batch_norm_backward(arrays[1], cache)])
    for one, other in zip(*results):
        np.testing.assert_array_equal(one.get(), other.get())


def test_unaligned_numbers_are_read_one_at_a_time(cupy):
    flat, weight, bias = numbers(3 * 2 * 8 + 1), np.ones(2), np.zeros(2)
    y, _ = F.batch_norm(to(cupy, flat)[1:].reshape(3, 2, 8), to(cupy, weight), to(cupy, bias))
    expected, _ = F.batch_norm.reference(flat[1:].reshape(3, 2, 8), weight, bias)
    np.testing.assert_allclose(y.get(), expected, rtol=1e-5, atol=1e-6)


def test_what_does_not_fit_is_refused_as_in_the_reference(cupy):
    for dtype in EPSILON:
        x, ones = to(cupy, np.ones((1, 3, 1)), dtype), to(cupy, np.ones(3))
        with pytest.raises(ValueError, match=r"batch_norm: expected x \(B, C, …\), not empty, weight"):
            F.batch_norm(x, to(cupy, np.ones(4)), ones)
        with pytest.raises(ValueError, match="batch_norm: expected more than one value per channel in training, got"):
            F.batch_norm(x, ones, ones)
        with pytest.raises(ValueError, match=r"batch_norm_running: expected variance \(3,\), got \(1,\)"):
            F.batch_norm_running(x, ones, ones, ones, ones[:1])


def test_mixed_dtypes_take_the_reference_in_float32_and_are_refused_in_low_precision(cupy):
    x, weight, bias = numbers(4, 3), np.ones(3), np.zeros(3)
    for operation, more in ((F.batch_norm, ()), (F.batch_norm_running, (to(cupy, bias), to(cupy, weight)))):
        y, _ = operation(to(cupy, x), cupy.asarray(weight), to(cupy, bias), *more)
        expected, _ = operation.reference(x, weight, bias, *(array.get() for array in more))
        np.testing.assert_allclose(y.get(), expected, rtol=1e-6, atol=1e-6)
        _, cache = operation(to(cupy, x), to(cupy, weight), to(cupy, bias), *more)
        assert operation.backward(cupy.asarray(x), cache, into=(False, to(cupy, bias)))[0].dtype == "float64"
        name = operation.__name__
        with pytest.raises(ValueError, match=f"{name}: no kernel for .*bfloat16.* together .*; compute"):
            operation(to(cupy, x, "bfloat16"), cupy.asarray(weight), to(cupy, bias), *more)
        with pytest.raises(ValueError, match=f"{name}_backward: no kernel for .*bfloat16.* together .*; compute"):
            operation.backward(to(cupy, x, "bfloat16"), cache)


@pytest.mark.parametrize("operation", [F.batch_norm, F.batch_norm_running])
def test_the_order_of_the_threads_changes_no_bit(cupy, any_order, operation):
    x, ones = to(cupy, numbers(11, 2, 800)), to(cupy, np.ones(2))
    _, cache = operation(x, ones, ones, *([ones, ones] if operation is F.batch_norm_running else []))
    operation.backward(x, cache)


def test_the_references_cache_has_no_field_that_the_kernels_lacks(cupy):
    x, ones = to(cupy, numbers(4, 2)), to(cupy, np.ones(2))
    _, cache = F.batch_norm(x, ones, ones)
    assert all(hasattr(cache, field) for field in BatchNormCache._fields)
