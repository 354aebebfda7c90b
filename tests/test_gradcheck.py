"""gradcheck finds wrong gradients and says where they are."""

import sys

import numpy as np
import pytest

from tinyvit import ViT, ViTConfig, gradcheck
from tinyvit import functional as F

X = np.random.default_rng(0).standard_normal((2, 3, 4))
WEIGHT, BIAS = np.random.default_rng(1).standard_normal((2, 4))
METHODS = pytest.mark.parametrize("method", ["complex", "central"])


@METHODS
@pytest.mark.parametrize("directions", [None, 5])
def test_a_right_gradient_passes(method, directions):
    report = gradcheck.check(F.layernorm, F.layernorm_backward, (X, WEIGHT, BIAS), method, directions=directions)
    assert report.max_error < gradcheck.BOUNDS[method], report
    assert [finding.name for finding in report.inputs] == ["x", "weight", "bias"]


@METHODS
def test_one_wrong_entry_is_found_with_its_place_and_what_was_expected(method):
    def backward(dy, cache):
        dx, dweight, dbias = F.layernorm_backward(dy, cache)
        dweight[2] += 0.25
        return dx, dweight, dbias

    report = gradcheck.check(F.layernorm, backward, (X, WEIGHT, BIAS), method)
    assert report.worst.name == "weight" and report.worst.where == "entry (2,)"
    assert report.worst.got - report.worst.expected == pytest.approx(0.25, abs=1e-6)
    assert "weight" in str(report) and "entry (2,)" in str(report)


@METHODS
@pytest.mark.parametrize("factor, least", [(1.001, 1e-4), (np.nan, np.inf)])
def test_a_wrong_gradient_is_found_along_random_directions_and_one_that_is_nan_is_infinitely_wrong(
    method, factor, least
):
    report = gradcheck.check(F.gelu, lambda dy, cache: F.gelu_backward(dy, cache) * factor, (X,), method, directions=3)
    assert report.max_error >= least and report.worst.where.startswith("direction")


def test_a_float32_gradient_is_compared_with_the_float64_derivative_and_numbers_are_passed_on():
    report = gradcheck.check(F.layernorm, F.layernorm_backward, (X.astype("float32"), WEIGHT, BIAS, 0.5))
    assert len(report.inputs) == 3 and 1e-9 < report.max_error < 1e-6


@pytest.mark.parametrize("backward, message", [
    (lambda dy, cache: (dy, dy), "expected 1 gradients from the backward, got 2"),
    (lambda dy, cache: dy[0], r"expected a gradient \(2, 3, 4\) of x, got \(3, 4\)"),
    (lambda dy, cache: None, r"expected a gradient \(2, 3, 4\) of x, got NoneType"),
])  # fmt: skip
def test_gradients_of_the_wrong_number_or_shape_are_named(backward, message):
    with pytest.raises(ValueError, match=message):
        gradcheck.check(F.gelu, backward, (X,))


def test_a_forward_that_drops_the_imaginary_part_is_refused_with_a_hint_at_central_differences():
    def check(method):
        return gradcheck.check(lambda x: (np.abs(x), x), lambda dy, x: dy * np.sign(x), (X,), method)

    with pytest.raises(ValueError, match="use method='central'"):
        check("complex")
    assert check("central").max_error < 1e-7


@pytest.mark.parametrize("forward, inputs, options, message", [
    (lambda x: x**2, (X,), {}, r"expected the forward to return \(y, cache\), got ndarray"),
    (F.gelu, X, {}, "expected the inputs as a tuple, got ndarray"),
    (F.gelu, (X,), {"method": "forward"}, "unknown method 'forward'; expected one of complex, central"),
    (F.gelu, (np.arange(3),), {}, "none of the inputs"),
])  # fmt: skip
def test_what_can_not_be_checked_is_refused(forward, inputs, options, message):
    with pytest.raises(ValueError, match=message):
        gradcheck.check(forward, F.gelu_backward, inputs, **options)


@METHODS
def test_a_wrong_gradient_anywhere_in_a_model_is_found(method, monkeypatch):
    model = ViT(ViTConfig(8, 4, 1, 3, 12, 2, 3))
    images = np.random.default_rng(0).standard_normal((2, 1, 8, 8))
    assert gradcheck.check_model(model, images, method=method).max_error < gradcheck.MODEL_BOUNDS[method]
    original = F.layernorm_backward

    def forgetful(dy, cache, into=None):
        """A common mistake: the mean of g is not subtracted."""
        dx, *others = original(dy, cache, into)
        return dx + cache.rstd * (dy * cache.weight).mean(-1, keepdims=True), *others

    # On a GPU every norm is one with the sum before it, which is written in the same file.
    for module in (F, sys.modules["tinyvit.functional.layernorm"]):
        monkeypatch.setattr(module, "layernorm_backward", forgetful)
    assert gradcheck.check_model(model, images, method=method).max_error > 1e-3


def test_checking_a_model_does_not_change_it():
    model = ViT(ViTConfig(8, 4, 1, 3, 12, 2, 3))
    before = model.state_dict()
    gradcheck.check_model(model, np.ones((1, 1, 8, 8)), directions=1)
    assert model.dtype == "float32" and model.storage.grad is None
    for name, array in model.state_dict().items():
        np.testing.assert_array_equal(array, before[name])
