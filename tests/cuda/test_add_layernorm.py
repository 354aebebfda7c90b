import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numbers_of import EPSILON, numbers, to

from tinyvit import functional as F

ROWS = st.lists(st.integers(0, 5), max_size=2).map(tuple)
WIDTHS = st.integers(1, 40) | st.sampled_from([192, 264, 384, 768, 1024, 1032])


@pytest.mark.parametrize("dtype", EPSILON)
@given(rows=ROWS, D=WIDTHS, seed=st.integers(0, 99))
def test_add_layernorm_is_the_rounded_sum_and_the_layer_norm_of_that(cupy, dtype, rows, D, seed):
    x, branch, dtotal, dy = (to(cupy, a, dtype) for a in numbers(4, *rows, D, dtype=dtype, seed=seed))
    weight, bias = (to(cupy, a) for a in numbers(2, D, seed=seed))
    (total, y), cache = F.add_layernorm(x, branch, weight, bias)
    np.testing.assert_array_equal(total.get(), x.get() + branch.get())
    expected, c = F.layernorm(total, weight, bias)
    np.testing.assert_array_equal(y.get(), expected.get())
    np.testing.assert_array_equal(cache.xhat.get(), c.xhat.get())
    dx, dbranch, dweight, dbias = F.add_layernorm_backward((dtotal, dy), cache)
    alone, *parameters = F.layernorm_backward(dy, c)
    assert dx is dbranch and dx.dtype == dtype
    for got, want in zip((dweight, dbias), parameters, strict=True):
        np.testing.assert_array_equal(got.get(), want.get())
    wanted = dtotal.get().astype("float64") + alone.get().astype("float64")
    # There the gradient alone was rounded, here the sum is.
    rounding = EPSILON[dtype] * (abs(alone.get().astype("float64")) + abs(wanted))
    assert (abs(dx.get().astype("float64") - wanted) <= rounding + 1e-7).all()


@given(wanted=st.tuples(st.booleans(), st.booleans()))
def test_gradients_are_added_into_the_given_arrays_or_left_out(cupy, wanted):
    x, branch, dtotal, dy = (to(cupy, a) for a in numbers(4, 3, 7, 24))
    _, cache = F.add_layernorm(x, branch, *(to(cupy, a) for a in numbers(2, 24)))
    dx, _, *alone = F.add_layernorm_backward((dtotal, dy), cache)
    into = tuple(to(cupy, np.ones(24)) if want else False for want in wanted)
    again, _, *parameters = F.add_layernorm_backward((dtotal, dy), cache, into=into)
    np.testing.assert_array_equal(again.get(), dx.get())
    for got, goal, gradient in zip(parameters, into, alone, strict=True):
        assert got is (None if goal is False else goal)
        if goal is not False:
            np.testing.assert_array_equal(got.get(), 1 + gradient.get())


def test_a_cache_of_add_layernorm_goes_back_through_layernorm_too(cupy):
    x, branch, dy = (to(cupy, a) for a in numbers(3, 4, 8))
    weight, bias = (to(cupy, a) for a in numbers(2, 8))
    (total, _), cache = F.add_layernorm(x, branch, weight, bias)
    _, c = F.layernorm(total, weight, bias)
    for got, want in zip(F.layernorm_backward(dy, cache), F.layernorm_backward(dy, c), strict=True):
        np.testing.assert_array_equal(got.get(), want.get())


def test_incompatible_shapes_and_dtypes_are_refused(cupy):
    x, ones = to(cupy, numbers(4, 6), "bfloat16"), to(cupy, np.ones(6))
    with pytest.raises(ValueError, match=r"add_layernorm: expected x and branch of one shape, got \(4, 6\) and \(6,\)"):
        F.add_layernorm(x, x[0], ones, ones)
    with pytest.raises(ValueError, match="layernorm: expected x .* with D > 0, got"):
        F.add_layernorm(x, x, ones[1:], ones)
    with pytest.raises(ValueError, match="add_layernorm: no kernel for .*bfloat16.* together .*; compute"):
        F.add_layernorm(x, to(cupy, numbers(4, 6)), ones, ones)
    _, cache = F.add_layernorm(x, x, ones, ones)
    with pytest.raises(ValueError, match="add_layernorm_backward: no kernel for .*bfloat16.* together .*; compute"):
        F.add_layernorm_backward((to(cupy, numbers(4, 6)), x), cache)


def test_other_dtypes_above_low_precision_take_the_reference(cupy):
    x, branch = numbers(2, 4, 6)
    weight, bias = (to(cupy, a) for a in numbers(2, 6))
    (total, _), cache = F.add_layernorm(to(cupy, x), cupy.asarray(branch), weight, bias)
    assert total.dtype == "float64"
    _, cache = F.add_layernorm(to(cupy, x), to(cupy, branch), weight, bias)
    dx, _, dweight, _ = F.add_layernorm_backward((cupy.asarray(x), to(cupy, branch)), cache, into=(weight, False))
    assert dx.dtype == "float64" and dweight is weight


def test_the_order_of_the_threads_changes_no_bit(cupy, any_order):
    x, branch = (to(cupy, a) for a in numbers(2, 20, 200))
    ones = to(cupy, np.ones(200))
    _, cache = F.add_layernorm(x, branch, ones, ones)
    F.add_layernorm_backward((x, branch), cache)
