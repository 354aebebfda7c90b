import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinyvit import Key
from tinyvit import functional as F

RATES = st.sampled_from([0.0, 0.5])


def arrays(seed):
    draws = np.random.default_rng(seed)
    return [*draws.normal(size=(4, 6, 5, 12)), *draws.normal(size=(3, 12))]


@given(seed=st.integers(0, 99), rate=RATES)
def test_add_branch_is_bias_drop_path_and_sum(seed, rate):
    x, branch, dy, _, offset, *_ = arrays(seed)
    y, cache = F.add_branch(x, branch, offset, rate, Key(seed))
    dropped, c_drop = F.drop_path(branch + offset, rate, Key(seed))
    np.testing.assert_array_equal(y, x + dropped)
    dx, dbranch, doffset = F.add_branch_backward(dy, cache)
    np.testing.assert_array_equal(dx, dy)
    np.testing.assert_array_equal(dbranch, F.drop_path_backward(dy, c_drop))
    np.testing.assert_allclose(doffset, dbranch.sum((0, 1)), rtol=1e-12, atol=1e-12)


@given(seed=st.integers(0, 99), rate=RATES)
def test_add_branch_layernorm_is_the_sum_and_its_norm(seed, rate):
    x, branch, dtotal, dy, offset, weight, bias = arrays(seed)
    (total, y), cache = F.add_branch_layernorm(x, branch, offset, weight, bias, 1e-3, rate, Key(seed))
    expected, c_sum = F.add_branch(x, branch, offset, rate, Key(seed))
    norm, c_norm = F.layernorm(total, weight, bias, 1e-3)
    np.testing.assert_array_equal(total, expected)
    np.testing.assert_array_equal(y, norm)
    dx, dbranch, doffset, dweight, dbias = F.add_branch_layernorm_backward((dtotal, dy), cache)
    through, *parameters = F.layernorm_backward(dy, c_norm)
    wanted = F.add_branch_backward(dtotal + through, c_sum)
    for got, want in zip((dx, dbranch, doffset, dweight, dbias), (*wanted, *parameters), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)


@given(seed=st.integers(0, 99), rate=RATES)
def test_a_sum_that_goes_nowhere_else_gets_the_gradient_of_its_norm_alone(seed, rate):
    x, branch, zeros, dy, offset, weight, bias = arrays(seed)
    _, cache = F.add_branch_layernorm(x, branch, offset, weight, bias, 1e-3, rate, Key(seed))
    zeros *= 0
    pairs = zip(*(F.add_branch_layernorm_backward((dtotal, dy), cache) for dtotal in (None, zeros)), strict=True)
    for got, want in pairs:
        np.testing.assert_array_equal(got, want)
    with pytest.raises(ValueError, match="expected dy as an array, got NoneType"):
        F.add_branch_layernorm_backward((dy, None), cache)
    with pytest.raises(ValueError, match="expected dy as a tuple of 2 arrays, got 1 entries"):
        F.add_branch_layernorm_backward((None,), cache)


@pytest.mark.parametrize("shapes", [((2, 3), (3,), (3,)), ((2, 3), (2, 3), (2,)), ((3,), (3,), (3,))])
def test_shapes_that_do_not_fit_are_refused(shapes):
    operands = list(map(np.ones, shapes))
    with pytest.raises(ValueError, match=r"add_branch: expected x and branch \(B, ..., D\) and offset \(D,\), got"):
        F.add_branch(*operands)
    with pytest.raises(ValueError, match="add_branch_layernorm: expected x and branch"):
        F.add_branch_layernorm(*operands, np.ones(3), np.ones(3))
