import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinyvit.optim import LossScale, loss_scale


@given(applied=st.lists(st.booleans(), max_size=60))
def test_it_is_halved_at_each_overflow_and_doubled_after_enough_good_steps(applied):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loss_scale, "GROWTH_INTERVAL_STEPS", 3)
        scale, expected, good = LossScale(np), 2.0**16, 0
        for each in applied:
            assert scale.update(np.bool_(each)) == (not each and expected > 1)
            good = good + 1 if each else 0
            expected = max(expected / 2, 1.0) if not each else min(expected * 2, 2.0**24) if good == 3 else expected
            good = good % 3
            assert scale.scale == expected and scale.good == good
            assert scale.scale.dtype == "float32"


@given(steps=st.integers(0, 16), seed=st.integers(0, 99))
def test_scaling_and_unscaling_gives_the_same_bits(steps, seed):
    scale, g = LossScale(np), np.random.default_rng(seed).standard_normal(50).astype("float32")
    for _ in range(steps):
        scale.update(np.bool_(False))
    scaled = g * scale.scale
    scale.unscale(scaled)
    np.testing.assert_array_equal(scaled, g)
