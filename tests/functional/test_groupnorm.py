import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import SIZES, normals, seeds

from tinyvit import functional as F
from tinyvit import gradcheck

STANDARDIZE = pytest.mark.parametrize("standardize", [F.standardize_weight, F.standardize_weight_original])


@st.composite
def grouped(draw, dtype="float64"):
    """x (B, C, …), weight (C,), bias (C,), and a number of groups of at least two values each."""
    B, groups, each, *sides = (draw(SIZES) for _ in range(draw(st.integers(3, 5))))
    sides = sides if each > 1 or np.prod(sides) > 1 else [*sides, 2]
    C = groups * each
    return draw(normals((B, C, *sides), (C,), (C,), dtype=dtype)), groups


@given(drawn=grouped(), seed=seeds())
def test_gradients_of_group_norm_match_the_complex_step(drawn, seed):
    arrays, groups = drawn
    report = gradcheck.check(F.group_norm, F.group_norm_backward, (*arrays, groups), seed=seed)
    assert report.max_error < 1e-10, report


@given(drawn=grouped())
def test_every_group_of_every_sample_has_mean_zero_and_variance_one(drawn):
    (x, weight, bias), groups = drawn
    y, _ = F.group_norm(x, np.ones_like(weight), np.zeros_like(bias), groups, eps=0.0)
    y = y.reshape(len(x), groups, -1)
    np.testing.assert_allclose(y.mean(-1), 0, atol=1e-9)
    np.testing.assert_allclose((y * y).mean(-1), 1, atol=1e-9)


@given(drawn=grouped())
def test_no_sample_depends_on_another(drawn):
    (x, weight, bias), groups = drawn
    whole, _ = F.group_norm(x, weight, bias, groups)
    alone = [F.group_norm(sample[None], weight, bias, groups)[0] for sample in x]
    np.testing.assert_allclose(np.concatenate(alone), whole, atol=1e-13)


@given(arrays=normals((3, 5), (5,), (5,), dtype="float64"))
def test_one_group_of_vectors_is_layer_norm(arrays):
    np.testing.assert_allclose(F.group_norm(*arrays, 1)[0], F.layernorm(*arrays, eps=1e-5)[0], atol=1e-13)


@pytest.mark.parametrize("groups", [0, 4, 7, 2.0])
def test_groups_that_do_not_divide_the_channels_are_refused(groups):
    with pytest.raises(ValueError, match="group_norm: expected groups that divide the 6 channels, got"):
        F.group_norm(np.ones((2, 6, 3)), np.ones(6), np.ones(6), groups)


@STANDARDIZE
@given(arrays=normals((3, 2, 3, 2), dtype="float64"), seed=seeds())
def test_gradients_of_standardised_weights_match_the_complex_step(standardize, arrays, seed):
    report = gradcheck.check(standardize, standardize.backward, arrays, seed=seed)
    assert report.max_error < 1e-10, report


@STANDARDIZE
@given(arrays=normals((3, 2, 3, 2), dtype="float64"))
def test_every_filter_has_mean_zero_and_variance_one(standardize, arrays):
    filters = standardize(*arrays, eps=0.0)[0].reshape(3, -1)
    np.testing.assert_allclose(filters.mean(-1), 0, atol=1e-12)
    np.testing.assert_allclose((filters * filters).mean(-1), 1, atol=1e-12)


@pytest.mark.parametrize("sigma", [1e-3, 1e-2])
def test_the_two_conventions_differ_in_where_epsilon_is_added(sigma):
    weight = sigma * np.array([[1.0, -1.0, 1.0, -1.0]])
    np.testing.assert_allclose(F.standardize_weight(weight)[0][0, 0], sigma / (sigma**2 + 1e-6) ** 0.5, rtol=1e-12)
    np.testing.assert_allclose(F.standardize_weight_original(weight)[0][0, 0], sigma / (sigma + 1e-5), rtol=1e-12)


@STANDARDIZE
def test_a_constant_filter_becomes_zero_with_a_finite_gradient(standardize):
    what, cache = standardize(np.full((2, 3, 1, 1), 4.0))
    np.testing.assert_array_equal(what, 0)
    assert np.isfinite(standardize.backward(np.arange(6.0).reshape(2, 3, 1, 1), cache)).all()


@STANDARDIZE
@pytest.mark.parametrize("shape", [(3,), (3, 0), (0, 2, 3)])
def test_filters_without_numbers_are_refused(standardize, shape):
    with pytest.raises(ValueError, match=r"expected filters \(O, …\), not empty, got"):
        standardize(np.ones(shape))
