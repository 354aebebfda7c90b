"""Noise put into images, and the step back."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import SIZES, seeds

from tinyvit import functional as F
from tinyvit import gradcheck

levels_of = st.floats(0.01, 0.99)


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
@given(steps=st.integers(1, 1200))
def test_noise_grows_at_every_step(schedule, steps):
    levels = F.noise_levels(schedule, steps)
    assert levels.shape == (steps,) and levels.dtype == "float64"
    assert (np.diff(levels) < 0).all() and 0 < levels[-1] <= levels[0] < 1


def test_the_linear_schedule_is_that_of_ddpm():
    levels = F.noise_levels("linear", 1000)
    betas = 1 - levels / np.concatenate([[1], levels[:-1]])
    np.testing.assert_allclose(betas, np.linspace(1e-4, 0.02, 1000), rtol=1e-9)
    assert levels[-1] < 5e-5


def test_the_cosine_schedule_is_half_signal_in_the_middle_and_noise_at_the_end():
    levels = F.noise_levels("cosine", 1000)
    assert levels[500] == pytest.approx(0.5, abs=0.02) and levels[-1] < 1e-6
    assert levels[500] > 5 * F.noise_levels("linear", 1000)[500]


@pytest.mark.parametrize("schedule, steps, message", [
    ("square", 10, "expected a schedule of linear, cosine, got 'square'"),
    ("linear", 0, "expected at least 1 step, got 0"),
])  # fmt: skip
def test_schedules_that_do_not_exist_are_refused(schedule, steps, message):
    with pytest.raises(ValueError, match=message):
        F.noise_levels(schedule, steps)


@given(shape=st.tuples(SIZES, SIZES, SIZES, SIZES), seed=seeds())
def test_gradients_match_the_complex_step(shape, seed):
    random = np.random.default_rng(seed)
    x, noise = random.standard_normal((2, *shape))
    level = random.random(len(x))
    report = gradcheck.check(F.add_noise, F.add_noise_backward, (x, noise.tolist(), level.tolist()), seed=seed)
    assert report.max_error < 1e-10, report


def test_images_of_variance_1_keep_it():
    x, noise = np.random.default_rng(0).standard_normal((2, 5, 40_000))
    y, _ = F.add_noise(x, noise, np.array([0.0, 0.1, 0.5, 0.9, 1.0]))
    np.testing.assert_allclose(y.std(1), 1, atol=0.02)
    np.testing.assert_array_equal(y[0], noise[0])
    np.testing.assert_array_equal(y[4], x[4])


@given(level=levels_of, seed=seeds())
def test_an_image_is_clean_again_when_its_noise_is_taken_out(level, seed):
    x, noise = np.random.default_rng(seed).standard_normal((2, 3, 4))
    noisy, _ = F.add_noise(x, noise, np.full(3, level))
    np.testing.assert_allclose(F.denoise(noisy, noise, level), x, atol=1e-12)
    np.testing.assert_allclose(F.denoise(noisy, noise, level, (-0.5, 0.5)), x.clip(-0.5, 0.5), atol=1e-12)


@given(level=levels_of, previous=levels_of, seed=seeds())
def test_a_step_back_with_the_true_noise_is_the_image_with_less_of_it(level, previous, seed):
    x, noise = np.random.default_rng(seed).standard_normal((2, 3, 4))
    noisy, _ = F.add_noise(x, noise, np.full(3, level))
    expected, _ = F.add_noise(x, noise, np.full(3, previous))
    np.testing.assert_allclose(F.step_back(noisy, noise, level, previous), expected, atol=1e-12)
    np.testing.assert_allclose(F.step_back(expected, noise, previous, level), noisy, atol=1e-12)  # and back


@given(seed=seeds(), t=st.integers(1, 999))
def test_the_mean_of_a_step_with_noise_is_that_of_the_posterior(seed, t):
    levels = F.noise_levels("linear", 1000)
    level, previous = float(levels[t]), float(levels[t - 1])
    x, noise = np.random.default_rng(seed).standard_normal((2, 5))
    alpha = level / previous
    variance = F.variance_back(level, previous)
    assert variance == pytest.approx((1 - previous) / (1 - level) * (1 - alpha))
    image = F.denoise(x, noise, level)
    mean = (previous**0.5 * (1 - alpha) * image + alpha**0.5 * (1 - previous) * x) / (1 - level)  # eq. 7 of DDPM
    np.testing.assert_allclose(F.step_back(x, noise, level, previous, variance=variance), mean, rtol=1e-9, atol=1e-9)


def test_the_last_step_back_gives_the_image_itself():
    x, noise = np.random.default_rng(0).standard_normal((2, 3, 4))
    np.testing.assert_allclose(F.step_back(x, noise, 0.9, 1.0), F.denoise(x, noise, 0.9), atol=1e-14)
    assert F.variance_back(0.9, 1.0) == 0


def test_guidance_goes_from_no_class_over_the_models_own_word_beyond_it():
    with_class, without = np.random.default_rng(0).standard_normal((2, 3))
    np.testing.assert_array_equal(F.guided_noise(with_class, without, 0), without)
    np.testing.assert_allclose(F.guided_noise(with_class, without, 1), with_class)
    np.testing.assert_allclose(F.guided_noise(with_class, without, 3), 3 * with_class - 2 * without)


@pytest.mark.parametrize("noise, level", [(np.ones((2, 3)), np.ones(3)), (np.ones((2, 2)), np.ones(2))])
def test_noise_that_does_not_fit_is_refused(noise, level):
    with pytest.raises(ValueError, match=r"add_noise: expected x and noise \(B, …\) and a level \(B,\), got \(2, 3\)"):
        F.add_noise(np.ones((2, 3)), noise, level)
