from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numbers_of import DTYPE, EPSILON, numbers, to

from tinyvit import Key
from tinyvit import functional as F
from tinyvit.kernels.cuda import layernorm

ROWS = st.sampled_from([(1,), (5,), (3, 4), (2, 0, 3), (9, 2, 3)])
WIDTHS = st.sampled_from([1, 24, 37, 192, 264, 1024, 1025, 1032])


def operands(cupy, rows, D, dtype, seed):
    x, branch, dtotal, dy = numbers(4, *rows, D, dtype=dtype, seed=seed)
    offset, weight, bias = numbers(3, D, seed=seed + 1)
    return (x, branch, offset, weight, bias), [
        *(to(cupy, a, dtype) for a in (x, branch)), *(to(cupy, a) for a in (offset, weight, bias))
    ], (dtotal, dy), tuple(to(cupy, a, dtype) for a in (dtotal, dy))  # fmt: skip


def close(got, want, dtype, ulps=2):
    want = np.asarray(want)
    assert got.shape == want.shape
    eps = EPSILON[dtype] + 1e-6
    np.testing.assert_allclose(got.get().astype("float64"), want, rtol=ulps * eps, atol=ulps * eps)


def sums_close(got, want):
    assert got.dtype == "float32"
    np.testing.assert_allclose(got.get(), want, rtol=1e-4, atol=1e-5 * max(1, abs(want).max()))


@pytest.mark.parametrize("dtype", EPSILON)
@given(rows=ROWS, D=WIDTHS, rate=st.sampled_from([0.0, 0.4]), seed=st.integers(0, 99))
def test_add_branch_and_its_backward_are_those_of_the_reference(cupy, dtype, rows, D, rate, seed):
    arrays, ours, (dy, _), (our_dy, _) = operands(cupy, rows, D, dtype, seed)
    y, cache = F.add_branch(*ours[:3], rate, Key(seed))
    expected, c = F.add_branch.reference(*arrays[:3], rate, Key(seed))
    assert y.dtype == dtype
    close(y, expected, dtype)
    dx, dbranch, doffset = F.add_branch_backward(our_dy, cache)
    wanted = F.add_branch_backward.reference(dy, c)
    np.testing.assert_array_equal(dx.get().astype("float64"), dy)
    close(dbranch, wanted[1], dtype)
    sums_close(doffset, wanted[2])


@pytest.mark.parametrize("dtype", EPSILON)
@given(rows=ROWS, D=WIDTHS, rate=st.sampled_from([0.0, 0.4]), seed=st.integers(0, 99))
def test_add_branch_layernorm_is_the_sum_with_its_norm_and_their_backward(cupy, dtype, rows, D, rate, seed):
    arrays, ours, _, our_dy = operands(cupy, rows, D, dtype, seed)
    (total, y), cache = F.add_branch_layernorm(*ours, 1e-6, rate, Key(seed))
    close(total, F.add_branch.reference(*arrays[:3], rate, Key(seed))[0], dtype)
    norm, c_norm = F.layernorm(total, *ours[3:])
    np.testing.assert_array_equal(y.get(), norm.get())
    with mock.patch.object(layernorm, "MOST_BACKWARD", 2):
        dx, dbranch, doffset, dweight, dbias = F.add_branch_layernorm_backward(our_dy, cache)
        wanted, want_weight, want_bias = layernorm.gradients(our_dy[1], our_dy[0], c_norm, (None, None))
    for got, want in ((dx, wanted), (dweight, want_weight), (dbias, want_bias)):
        np.testing.assert_array_equal(got.get(), want.get())
    _, c_drop = F.drop_path.reference(arrays[1], rate, Key(seed))
    exact = F.drop_path_backward.reference(dx.get().astype("float64"), c_drop)
    close(dbranch, exact, dtype)
    exact = exact.reshape(-1, D)  # and summed up before it is rounded
    assert (abs(doffset.get() - exact.sum(0)) <= 1e-5 * (1 + abs(exact).sum(0))).all()
    assert (dbranch is dx) == (rate == 0)


@pytest.mark.parametrize("dtype", EPSILON)
@given(rows=ROWS, D=WIDTHS, rate=st.sampled_from([0.0, 0.4]), seed=st.integers(0, 99))
def test_a_sum_and_its_norm_have_the_same_bits_in_one_pass_and_in_two(cupy, dtype, rows, D, rate, seed):
    _, ours, _, (dtotal, dy) = operands(cupy, rows, D, dtype, seed)
    with mock.patch.object(layernorm, "MOST_BACKWARD", 2):
        (total, y), cache = F.add_branch_layernorm(*ours, 1e-6, rate, Key(seed))
        together = total, y, *F.add_branch_layernorm_backward((dtotal, dy), cache)
        total, c_sum = F.add_branch(*ours[:3], rate, Key(seed))
        y, c_norm = F.layernorm(total, *ours[3:])
        dx, _, *of_norm = F.add_layernorm_backward((dtotal, dy), c_norm)
        apart = total, y, *F.add_branch_backward(dx, c_sum), *of_norm
        nothing = to(cupy, np.zeros(dy.shape), dtype)
        together += F.add_branch_layernorm_backward((None, dy), cache)
        apart += F.add_branch_layernorm_backward((nothing, dy), cache)
    for got, want in zip(together, apart, strict=True):
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got.get(), want.get())


@given(wanted=st.tuples(*[st.booleans()] * 3), D=st.sampled_from([24, 1032]))
def test_gradients_are_added_into_the_given_arrays_or_left_out(cupy, wanted, D):
    _, ours, _, dy = operands(cupy, (5, 3), D, "float32", 0)
    _, cache = F.add_branch_layernorm(*ours, 1e-6, 0.3, Key(1))
    dx, dbranch, *alone = F.add_branch_layernorm_backward(dy, cache)
    into = tuple(to(cupy, np.ones(D)) if want else False for want in wanted)
    again, its_branch, *parameters = F.add_branch_layernorm_backward(dy, cache, into=into)
    np.testing.assert_array_equal(again.get(), dx.get())
    np.testing.assert_array_equal(its_branch.get(), dbranch.get())
    for got, goal, gradient in zip(parameters, into, alone, strict=True):
        assert got is (None if goal is False else goal)
        if goal is not False:
            np.testing.assert_array_equal(got.get(), 1 + gradient.get())
    _, cache = F.add_branch(*ours[:3], 0.3, Key(1))
    dx, dbranch, nothing = F.add_branch_backward(dy[0], cache, into=(False,))
    assert nothing is None
    np.testing.assert_array_equal(dbranch.get(), F.add_branch_backward(dy[0], cache)[1].get())


def test_incompatible_shapes_and_dtypes_are_refused(cupy):
    x, ones = to(cupy, numbers(4, 6), "bfloat16"), to(cupy, np.ones(6))
    with pytest.raises(ValueError, match=r"add_branch: expected x and branch .* got \(4, 6\), \(6,\) and \(6,\)"):
        F.add_branch(x, x[0], ones)
    with pytest.raises(ValueError, match="add_branch_layernorm: expected x and branch"):
        F.add_branch_layernorm(x, x, ones[1:], ones, ones)
    with pytest.raises(ValueError, match="layernorm: expected x .* with D > 0, got"):
        F.add_branch_layernorm(x, x, ones, ones[1:], ones)
    for operation, others in ((F.add_branch, ()), (F.add_branch_layernorm, (ones, ones))):
        with pytest.raises(ValueError, match="no kernel for .*bfloat16.* together .*; compute in float32"):
            operation(x, to(cupy, numbers(4, 6)), ones, *others)


def test_the_order_of_the_threads_changes_no_bit(cupy, any_order):
    for dtype in DTYPE:
        _, ours, _, dy = operands(cupy, (5, 4), 200, dtype, 0)
        _, cache = F.add_branch_layernorm(*ours, 1e-6, 0.3, Key(1))
        F.add_branch_layernorm_backward(dy, cache)
        _, cache = F.add_branch(*ours[:3], 0.3, Key(1))
        F.add_branch_backward(dy[0], cache)
