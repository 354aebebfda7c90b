import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import LAYOUTS, laid_out, seeds

from tinyvit import functional as F
from tinyvit.functional.groupnorm import GroupNormCache


@st.composite
def cases(draw):
    """x and dy (B, C, …), weight and bias (C,), float32, in any memory order, and groups that divide C."""
    groups, each = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    shape = draw(st.integers(1, 4)), groups * each, *draw(st.sampled_from([(1,), (7,), (3, 5), (16, 17), (3, 2, 4)]))
    generator, layouts = np.random.default_rng(draw(seeds())), st.sampled_from(LAYOUTS)
    x, dy = generator.standard_normal((2, *shape)).astype("float32")
    x += draw(st.sampled_from([0.0, 3.0, -100.0]))
    weight, bias = generator.standard_normal((2, shape[1])).astype("float32")
    return laid_out(x, draw(layouts)), laid_out(dy, draw(layouts)), weight, bias, groups


def in_float64(*arrays):
    return [array.astype("float64") for array in arrays]


@given(cases())
def test_the_kernel_is_as_right_as_the_reference(case):
    x, dy, weight, bias, groups = case
    y, cache = F.group_norm(x, weight, bias, groups)
    exact, exact_cache = F.group_norm.reference(*in_float64(x, weight, bias), groups)
    # x itself is rounded to 1e-7 of its largest number, which the division by the deviation enlarges.
    scale = 1 + abs(x).max() * exact_cache.rstd.max() * max(1, abs(weight).max())
    assert y.dtype == cache.xhat.dtype == cache.rstd.dtype == "float32" and y.shape == x.shape
    assert (cache.xhat.shape, cache.rstd.shape) == (exact_cache.xhat.shape, exact_cache.rstd.shape)
    np.testing.assert_allclose(y, exact, rtol=1e-4, atol=2e-6 * scale)
    # From the same cache, so that only the backward is compared.
    same = GroupNormCache(*in_float64(cache.xhat, cache.rstd, weight))
    expected = F.group_norm_backward.reference(dy.astype("float64"), same)
    for found, exact in zip(F.group_norm_backward(dy, cache), expected, strict=True):
        assert found.dtype == "float32" and found.shape == exact.shape
        np.testing.assert_allclose(found, exact, rtol=1e-4, atol=2e-5 * (1 + abs(exact).max() + cache.rstd.max()))


@given(cases())
def test_gradients_are_added_into_the_given_arrays_or_left_out(case):
    x, dy, weight, bias, groups = case
    _, cache = F.group_norm(x, weight, bias, groups)
    dx, dweight, dbias = F.group_norm_backward(dy, cache)
    total = np.ones_like(weight)
    np.testing.assert_array_equal(F.group_norm_backward(dy, cache, into=(None, False))[1], dweight)
    left_out = F.group_norm_backward(dy, cache, into=(False, total))
    np.testing.assert_array_equal(left_out[0], dx)
    assert left_out[1] is None and left_out[2] is total
    np.testing.assert_array_equal(total, 1 + dbias)


def test_a_channel_with_weight_0_gets_the_gradient_of_its_group():
    x, dy = np.random.default_rng(0).standard_normal((2, 2, 4, 9)).astype("float32")
    weight, bias = np.float32([0, 2, 0, 0]), np.ones(4, "float32")
    _, cache = F.group_norm(x, weight, bias, 2)
    _, exact_cache = F.group_norm.reference(*in_float64(x, weight, bias), 2)
    expected = F.group_norm_backward.reference(dy.astype("float64"), exact_cache)
    for found, exact in zip(F.group_norm_backward(dy, cache), expected, strict=True):
        np.testing.assert_allclose(found, exact, atol=1e-5)
    assert expected[0][:, 0].any() and not expected[0][:, 2:].any()


@pytest.mark.parametrize("groups", [0, 3, 2.0, "2"])
def test_groups_that_do_not_divide_the_channels_are_refused_as_by_the_reference(groups):
    with pytest.raises(ValueError, match="group_norm: expected groups that divide the 4 channels, got"):
        F.group_norm(np.ones((2, 4, 3), "float32"), *np.ones((2, 4), "float32"), groups)


@pytest.mark.parametrize("operation", [F.standardize_weight, F.standardize_weight_original, F.group_norm])
def test_numbers_far_from_zero_keep_their_digits(operation):
    x = (10_000 + 1e-3 * np.arange(64)).astype("float32").reshape(1, 4, 16)
    given = (np.ones(4, "float32"), np.zeros(4, "float32"), 1) if operation is F.group_norm else ()
    expected, _ = operation.reference(x.astype("float64"), *given)
    np.testing.assert_allclose(operation(x, *given)[0], expected, rtol=0, atol=1e-5)
