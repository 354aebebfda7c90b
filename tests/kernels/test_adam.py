import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from strategies import seeds

from tinyvit.functional.adam import adam_step

SCALES = st.sampled_from([1e-6, 1.0, 1e4])


@given(seed=seeds(), size=st.integers(1, 70), decay=st.sampled_from([0.0, 0.1]), scale=SCALES)
def test_ten_steps_are_the_plain_texts_to_a_float32s_last_digits(seed, size, decay, scale):
    generator = np.random.default_rng(seed)
    theta = generator.standard_normal(size, "float32")
    got = [theta.copy(), np.zeros_like(theta), np.zeros_like(theta)]
    exact = [x.astype("float64") for x in got]
    for t in range(1, 11):
        g = np.float32(scale) * generator.standard_normal(size, "float32")
        options = (t, 1e-2, (0.9, 0.999), 1e-8, decay)
        assert adam_step(got[0], g, *got[1:], *options) is None
        adam_step.reference(exact[0], g.astype("float64"), *exact[1:], *options)
    for x, y in zip(got, exact):
        assert x.dtype == "float32"
        np.testing.assert_allclose(x, y, rtol=2e-5, atol=2e-6 * np.abs(y).max())


def test_a_gradient_of_zero_moves_nothing():
    theta, m, v = np.ones(5, "float32"), np.zeros(5, "float32"), np.zeros(5, "float32")
    adam_step(theta, np.zeros(5, "float32"), m, v, 1, 1e-3, (0.9, 0.999), 1e-8, 0.0)
    np.testing.assert_array_equal(theta, 1)
