"""Properties of every operation, at every level of kernels that has an implementation of its own."""

import inspect

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import LAYOUTS, laid_out, seeds

from tinyvit import functional as F
from tinyvit import gradcheck, kernels

CASES = {name: case for name, *case in gradcheck.operation_cases()}


def drawn(case, seed):
    """(forward, backward, inputs) of one operation."""
    return gradcheck.operation_cases(seed, case)[0][1:]


def own_levels(case):
    """None, for the level that the suite runs at, and the levels below it where something else runs in float32."""
    (forward, backward, inputs), written_at = CASES[case], {}
    x = inputs[0].astype("float32")
    for level in kernels.available()[::-1]:
        with kernels.using(level):
            y, cache = forward(*(x.astype("float32") for x in inputs))
            operation = getattr(F, case.partition(",")[0])
            written_at[operation.which(x), backward.which(np.asarray(y), cache)] = level
    return [None, *list(written_at.values())[1:]]


at_its_levels = pytest.mark.parametrize(
    ("case", "level"), [(case, level) for case in CASES for level in own_levels(case)]
)


def cast(x, dtype, layout="contiguous"):
    return laid_out(x.astype(dtype), layout)


def as_tuple(gradients):
    return gradients if isinstance(gradients, tuple) else (gradients,)


def run(case, level, dtype, layout="contiguous", seed=0):
    """Result and gradients of one operation; the inputs are read-only, and so is the gradient that comes in."""
    forward, backward, inputs = drawn(case, seed)
    with kernels.using(level):
        y, cache = forward(*(cast(x, dtype, layout) for x in inputs))
        dy = np.random.default_rng(seed).standard_normal(np.shape(y)).astype(dtype)
        dy = laid_out(dy, layout) if dy.ndim else dy[()]
        return y, as_tuple(backward(dy, cache))


def test_every_operation_has_a_case():
    operations = {name for name in dir(F) if hasattr(F, f"{name}_backward")}
    assert operations == {case.split(",")[0] for case in CASES}


@pytest.mark.parametrize("case", CASES)
@given(seed=seeds())
def test_gradients_match_the_complex_step(case, seed):
    forward, backward, inputs = drawn(case, seed)
    report = gradcheck.check(forward, backward, inputs, directions=3, seed=seed)
    assert report.max_error < 1e-10, report


@pytest.mark.parametrize("case", CASES)
def test_gradients_match_central_differences_entry_by_entry(case):
    forward, backward, inputs = CASES[case]
    report = gradcheck.check(forward, backward, inputs, "central")
    assert report.max_error < 1e-7, report


@at_its_levels
@given(seed=seeds(), layout=st.sampled_from(LAYOUTS), dtype=st.sampled_from(["float32", "float64"]))
def test_read_only_inputs_in_any_memory_order_give_the_same_result_in_their_own_dtype(case, level, seed, layout, dtype):
    expected_y, expected = run(case, level, dtype, seed=seed)
    y, gradients = run(case, level, dtype, layout, seed)
    rtol = {"float32": 1e-5, "float64": 1e-13}[dtype]
    for got, want in zip((y, *gradients), (expected_y, *expected), strict=True):
        assert got.dtype == dtype
        np.testing.assert_allclose(got, want, rtol, rtol)


@at_its_levels
@given(seed=seeds())
def test_float32_agrees_with_float64(case, level, seed):
    (y32, gradients32), (y64, gradients64) = (run(case, level, dtype, seed=seed) for dtype in ("float32", "float64"))
    np.testing.assert_allclose(y32, y64, rtol=1.3e-6, atol=1e-5)
    for got, want in zip(gradients32, gradients64, strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-3, atol=1e-5 * np.abs(want).max())


@pytest.mark.parametrize("case", CASES)
def test_forward_forward_backward_backward_is_right(case):
    (forward, backward, inputs), (*_, other_inputs) = drawn(case, 0), drawn(case, 1)
    y, cache = forward(*inputs)
    dy = np.random.default_rng(0).standard_normal(np.shape(y))
    expected = [gradient.copy() for gradient in as_tuple(backward(dy, cache))]
    _, first = forward(*inputs)
    _, second = forward(*other_inputs)
    backward(dy, second)
    for got, want in zip(as_tuple(backward(dy, first)), expected, strict=True):
        np.testing.assert_array_equal(got, want)


@at_its_levels
@pytest.mark.parametrize("scale", [1e4, 1e-4])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_large_and_small_numbers_give_no_nan(case, level, scale, dtype):
    forward, backward, inputs = CASES[case]
    with kernels.using(level):
        y, cache = forward(*(cast(scale * x, dtype) for x in inputs))
        for array in (y, *as_tuple(backward(np.ones(np.shape(y), dtype)[()], cache))):
            assert np.isfinite(array).all()


@pytest.mark.parametrize("case", CASES)
def test_every_argument_can_be_given_by_name_and_is_checked(case):
    forward, _, inputs = CASES[case]
    arguments = inspect.signature(forward).parameters
    named = dict(zip(arguments, inputs))
    np.testing.assert_array_equal(forward(**named)[0], forward(*inputs)[0])
    for argument in arguments:
        with pytest.raises(ValueError, match=f"^{case.partition(',')[0]}: expected {argument} as an? "):
            forward(**named | {argument: np.array([None])})
