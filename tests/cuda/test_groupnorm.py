import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numbers_of import EPSILON, numbers, to

from tinyvit import functional as F
from tinyvit.functional.groupnorm import GroupNormCache

SIDES = st.lists(st.integers(1, 9), max_size=2).map(tuple) | st.sampled_from([(8, 8), (3, 16), (1, 300), (40, 33)])


def as_right_as_the_reference(cupy, shape, groups, dtype, seed=0, shift=1.0):
    """Compare y, cache and gradients with the reference implementation in float64."""
    x, dy = 3 * numbers(*shape, seed=seed) + shift, numbers(*shape, dtype=dtype, seed=seed + 1)
    x = to(cupy, x, dtype).get().astype("float64")
    parameters = [*numbers(2, shape[1], seed=seed + 2)]
    y, cache = F.group_norm(to(cupy, x, dtype), *(to(cupy, array) for array in parameters), groups)
    gradients = F.group_norm_backward(to(cupy, dy, dtype), cache)
    expected, c = F.group_norm.reference(x, *parameters, groups)
    assert [str(array.dtype) for array in (y, *gradients)] == [dtype, dtype, "float32", "float32"]
    assert cache.shape == shape and all(hasattr(cache, field) for field in GroupNormCache._fields)
    eps = EPSILON[dtype] + 2e-6
    np.testing.assert_allclose(y.get().astype("float64"), expected, rtol=eps, atol=2 * eps)
    np.testing.assert_allclose(cache.xhat.get(), c.xhat, rtol=2e-6, atol=3e-6)
    np.testing.assert_allclose(cache.rstd.get(), c.rstd, rtol=2e-6)
    # From the same statistics, to compare the backward only: 1 / √(σ² + ε) may be large.
    same = GroupNormCache(cache.xhat.get().astype("float64"), cache.rstd.get().astype("float64"), parameters[0])
    wanted = F.group_norm_backward.reference(dy, same)
    terms = same.rstd.max() * abs(parameters[0]).max() * abs(dy).max()  # of dx: little may be left of their difference
    rounding = 1e-6 + 4e-6 * abs(wanted[0]).max() + 2 * EPSILON["float32"] * terms
    bounds = (2 * eps, rounding), *((1e-5, 1e-5 * max(1, abs(w).max())) for w in wanted[1:])
    for got, want, (rtol, atol) in zip(gradients, wanted, bounds, strict=True):
        np.testing.assert_allclose(got.get().astype("float64"), want, rtol=rtol, atol=atol)


@pytest.mark.parametrize("dtype", EPSILON)
@given(
    B=st.integers(1, 5), groups=st.integers(1, 4), each=st.integers(1, 4), sides=SIDES, seed=st.integers(0, 99)
)  # fmt: skip
def test_group_norm_and_its_backward_are_those_of_the_reference(cupy, dtype, B, groups, each, sides, seed):
    as_right_as_the_reference(cupy, (B, groups * each, *sides), groups, dtype, seed)


def test_more_channels_in_a_group_than_a_block_has_threads(cupy):
    as_right_as_the_reference(cupy, (2, 600, 3), 2, "float32")


def test_a_large_mean_costs_no_more_digits_than_it_has_to(cupy):
    x = (1e4 + np.random.default_rng(0).standard_normal((3, 4, 17, 16))).astype("float32").astype("float64")
    y, cache = F.group_norm(to(cupy, x), to(cupy, np.ones(4)), to(cupy, np.zeros(4)), 2)
    expected, _ = F.group_norm.reference(x, np.ones(4), np.zeros(4), 2)
    np.testing.assert_allclose(y.get(), expected, rtol=0, atol=2e-6)
    np.testing.assert_allclose(cache.xhat.get(), expected, rtol=0, atol=2e-6)


@pytest.mark.parametrize("wanted", [(True, True), (True, False), (False, True), (False, False)])
def test_gradients_are_added_into_the_given_arrays_or_left_out(cupy, wanted):
    x, weight, bias, dy = (to(cupy, numbers(*shape)) for shape in ((3, 6, 4), (6,), (6,), (3, 6, 4)))
    _, cache = F.group_norm(x, weight, bias, 3)
    dx, *alone = F.group_norm_backward(dy, cache)
    into = tuple(to(cupy, np.ones(6)) if want else False for want in wanted)
    again, *parameters = F.group_norm_backward(dy, cache, into=into)
    np.testing.assert_array_equal(again.get(), dx.get())
    for got, want, goal, gradient in zip(parameters, wanted, into, alone, strict=True):
        assert got is (goal if want else None)
        if want:
            np.testing.assert_array_equal(got.get(), 1 + gradient.get())


@pytest.mark.parametrize("dtype", EPSILON)
def test_arrays_in_another_memory_order_and_unaligned_ones_are_read_correctly(cupy, dtype):
    x, dy = numbers(2, 3, 4, 16, dtype=dtype)
    weight, bias = numbers(2, 4)
    turned = [to(cupy, np.ascontiguousarray(a.transpose(2, 1, 0)), dtype).transpose(2, 1, 0) for a in (x, dy)]
    shifted = [to(cupy, np.append(0, a), dtype)[1:].reshape(a.shape) for a in (x, dy)]
    results = []
    for images, gradients in ([to(cupy, a, dtype) for a in (x, dy)], turned, shifted):
        y, cache = F.group_norm(images, to(cupy, np.repeat(weight, 2))[::2], to(cupy, bias), 2)
        results.append([a.get().astype("float64") for a in (y, *F.group_norm_backward(gradients, cache))])
    for plain, other, unaligned in zip(*results):
        np.testing.assert_array_equal(plain, other)
        np.testing.assert_allclose(plain, unaligned, rtol=2 * EPSILON[dtype], atol=2e-6)


def test_what_does_not_fit_is_refused_as_in_the_reference(cupy):
    for dtype in EPSILON:
        x, ones = to(cupy, np.ones((1, 4, 2)), dtype), to(cupy, np.ones(4))
        with pytest.raises(ValueError, match=r"group_norm: expected x \(B, C, …\), not empty, weight"):
            F.group_norm(x, ones[:3], ones, 1)
        with pytest.raises(ValueError, match="group_norm: expected groups that divide the 4 channels, got 3"):
            F.group_norm(x, ones, ones, 3)


def test_mixed_dtypes_take_the_reference_in_float32_and_are_refused_in_low_precision(cupy):
    x, weight, bias = numbers(3, 4, 5), np.ones(4), np.zeros(4)
    y, _ = F.group_norm(to(cupy, x), cupy.asarray(weight), to(cupy, bias), 2)
    np.testing.assert_allclose(y.get(), F.group_norm.reference(x, weight, bias, 2)[0], rtol=1e-6, atol=1e-6)
    _, cache = F.group_norm(to(cupy, x), to(cupy, weight), to(cupy, bias), 2)
    assert F.group_norm_backward(cupy.asarray(x), cache, into=(False, to(cupy, bias)))[0].dtype == "float64"
    with pytest.raises(ValueError, match="group_norm: no kernel for .*bfloat16.* together .*; compute"):
        F.group_norm(to(cupy, x, "bfloat16"), cupy.asarray(weight), to(cupy, bias), 2)


@pytest.mark.parametrize("operation", [F.standardize_weight, F.standardize_weight_original])
@given(shape=st.lists(st.integers(1, 7), min_size=2, max_size=4) | st.just([3, 300]), seed=st.integers(0, 99))
def test_standardised_weights_and_their_backward_are_those_of_the_reference(cupy, operation, shape, seed):
    weight, dy = 0.1 * numbers(*shape, seed=seed) + 0.2, numbers(*shape, seed=seed + 1)
    weight = weight.astype("float32").astype("float64")
    what, cache = operation(to(cupy, weight))
    expected, c = operation.reference(weight)
    np.testing.assert_allclose(what.get(), expected, rtol=1e-5, atol=1e-5 * max(1, c.scale.max() / 100))
    same = type(c)(*(field.get().astype("float64") for field in cache))        # to compare the backward only
    wanted = operation.backward.reference(dy, same)
    dweight = operation.backward(to(cupy, dy), cache)
    assert dweight.dtype == "float32"
    np.testing.assert_allclose(dweight.get(), wanted, rtol=1e-4, atol=1e-5 * max(1, c.scale.max()))
    total = to(cupy, np.ones(shape))
    assert operation.backward(to(cupy, dy), cache, into=(total,)) is total
    np.testing.assert_allclose(total.get(), 1 + dweight.get(), rtol=1e-6, atol=1e-6)
    assert operation.backward(to(cupy, dy), cache, into=(False,)) is None


def test_the_order_of_the_threads_changes_no_bit(cupy, any_order):
    x, ones = to(cupy, numbers(3, 4, 200)), to(cupy, np.ones(4))
    _, cache = F.group_norm(x, ones, ones, 2)
    F.group_norm_backward(x, cache)
