import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import seeds

from tinyvit.functional.adam import adam_step

SCALES = st.sampled_from([1e-6, 1.0, 1e4])


@given(seed=seeds(), size=st.integers(1, 70), decay=st.sampled_from([0.0, 0.1]), scale=SCALES)
def test_ten_steps_are_those_of_the_reference_to_a_float32s_last_digits(seed, size, decay, scale):
    generator = np.random.default_rng(seed)
    theta = generator.standard_normal(size, "float32")
    got = [theta.copy(), np.zeros_like(theta), np.zeros_like(theta)]
    exact = [x.astype("float64") for x in got]
    largest = np.zeros(3)  # that each array ever held: rounding is relative to that, and a moment may cancel
    for t in range(1, 11):
        g = np.float32(scale) * generator.standard_normal(size, "float32")
        options = (t, 1e-2, (0.9, 0.999), 1e-8, decay)
        assert adam_step(got[0], g, *got[1:], *options) is None
        adam_step.reference(exact[0], g.astype("float64"), *exact[1:], *options)
        largest = np.maximum(largest, [np.abs(y).max() for y in exact])
    for x, y, most in zip(got, exact, largest):
        assert x.dtype == "float32"
        np.testing.assert_allclose(x, y, rtol=2e-5, atol=2e-6 * most)


def test_a_gradient_of_zero_moves_nothing():
    theta, m, v = np.ones(5, "float32"), np.zeros(5, "float32"), np.zeros(5, "float32")
    adam_step(theta, np.zeros(5, "float32"), m, v, 1, 1e-3, (0.9, 0.999), 1e-8, 0.0)
    np.testing.assert_array_equal(theta, 1)


def shape_of(x, how):
    """Four or more numbers as an array that is not flat and contiguous."""
    return {"matrix": x.reshape(2, -1), "every other": np.repeat(x, 2)[::2], "in float64": x.astype("float64")}[how]


@pytest.mark.parametrize("how", ["matrix", "every other", "in float64"])
def test_arrays_of_any_shape_strides_and_dtype_take_the_same_step(how):
    theta, g, m, v = np.random.default_rng(0).random((4, 6), "float32")
    options = (3, 1e-2, (0.9, 0.999), 1e-8, 0.1)
    got = [shape_of(x, how).copy() if how != "every other" else shape_of(x, how) for x in (theta, m, v)]
    adam_step(got[0], shape_of(g, how), *got[1:], *options)
    exact = [x.astype("float64") for x in (theta, g, m, v)]
    adam_step.reference(*exact, *options)
    for x, y in zip(got, [exact[0], *exact[2:]]):
        np.testing.assert_allclose(x.reshape(-1), y, rtol=1e-5)


def test_a_skipped_step_changes_nothing():
    theta, g, m, v = np.random.default_rng(0).random((4, 6), "float32")
    before = [x.copy() for x in (theta, m, v)]
    for where in (False, np.zeros((), bool)):
        adam_step(theta, g, m, v, 3, 1e-2, (0.9, 0.999), 1e-8, 0.1, where=where)
        for x, y in zip((theta, m, v), before):
            np.testing.assert_array_equal(x, y)
