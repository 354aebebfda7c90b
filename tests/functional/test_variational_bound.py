"""The loss of a learned variance."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm
from strategies import seeds

from tinyvit import functional as F
from tinyvit import gradcheck


def drawn(seed, B=3, n=4, gap=0.3):
    random = np.random.default_rng(seed)
    least = random.uniform(-4, -1, B)
    options = dict(gap=gap * random.standard_normal((B, n)), least=least, most=least + random.uniform(0, 3, B),
                   first=random.random(B) < 0.5, half=0.2)  # fmt: skip
    place = random.random((B, n))
    options["ends"] = np.stack([place < 0.2, place > 0.8])
    return random.uniform(-1, 1, (B, n)), options


@given(seed=seeds())
def test_gradients_match_the_complex_step(seed):
    x, options = drawn(seed)
    report = gradcheck.check(partial(F.variational_bound, **options), F.variational_bound_backward, (x,), seed=seed)
    assert report.max_error < 1e-10, report


@given(seed=seeds())
def test_it_is_the_divergence_of_two_normal_distributions_or_the_likelihood_of_a_level(seed):
    x, options = drawn(seed)
    gap, least, most, first, half, (darkest, brightest) = options.values()
    least, most = least[:, None], most[:, None]
    log_variance = (x + 1) / 2 * most + (1 - x) / 2 * least
    divergence = (log_variance - least) / 2 + (np.exp(least) + gap**2) / (2 * np.exp(log_variance)) - 0.5
    cdf = norm(scale=np.exp(log_variance / 2)).cdf
    likelihood = np.where(brightest, 1, cdf(gap + half)) - np.where(darkest, 0, cdf(gap - half))
    expected = np.where(first[:, None], -np.log(likelihood), divergence).mean() / np.log(2)
    np.testing.assert_allclose(F.variational_bound(x, **options)[0], expected, rtol=1e-9)


@given(seed=seeds())
def test_nothing_is_lost_where_mean_and_variance_are_right(seed):
    x, options = drawn(seed)
    options |= {"gap": 0 * x, "first": np.zeros(3, bool)}
    loss, cache = F.variational_bound(0 * x - 1, **options)
    assert loss == pytest.approx(0, abs=1e-14)
    np.testing.assert_allclose(F.variational_bound_backward(1.0, cache), 0, atol=1e-14)


def test_the_probabilities_of_all_levels_add_up_to_1():
    levels = np.linspace(-1, 1, 11)
    total = 0
    for number, level in enumerate(levels):
        ends = np.array([[[number == 0]], [[number == 10]]])
        loss, _ = F.variational_bound(np.array([[0.0]]), np.array([[level - 0.1]]), np.array([-2.0]), np.array([-1.0]),
                                      np.array([True]), 0.1, ends)  # fmt: skip
        total += 2.0**-loss
    assert total == pytest.approx(1, rel=1e-12)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@given(seed=seeds(), size=st.sampled_from([1e2, 1e6]))
def test_variances_out_of_all_bounds_give_finite_losses_and_gradients(dtype, seed, size):
    x, options = drawn(seed)
    loss, cache = F.variational_bound((size * x).astype(dtype), **options)
    assert np.isfinite(loss) and loss.dtype == dtype
    assert np.isfinite(F.variational_bound_backward(np.ones((), dtype), cache)).all()


def test_a_level_that_can_not_be_has_a_finite_loss_and_no_gradient():
    x, options = drawn(0)
    options |= {"gap": np.full(x.shape, 1e3), "first": np.ones(3, bool), "ends": np.zeros((2, *x.shape), bool)}
    loss, cache = F.variational_bound(x, **options)
    assert loss == pytest.approx(-np.log2(1e-12)) and not F.variational_bound_backward(1.0, cache).any()


def test_shapes_that_do_not_fit_are_refused():
    x, options = drawn(0)
    for name, wrong in (("gap", np.ones((3, 5))), ("least", np.ones(2)), ("first", np.ones((3, 4), bool))):
        with pytest.raises(ValueError, match=r"variational_bound: expected x and gap \(B, …\) and limits \(B,\)"):
            F.variational_bound(x, **options | {name: wrong})
