from itertools import pairwise
from math import pi

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinyvit.optim import SCHEDULES, warmup_constant, warmup_cosine, warmup_linear, warmup_one_cycle

FALLING = {name: schedule for name, schedule in SCHEDULES.items() if name != "constant"}
each_schedule = pytest.mark.parametrize("schedule", SCHEDULES.values(), ids=SCHEDULES)
each_that_falls = pytest.mark.parametrize("schedule", FALLING.values(), ids=FALLING)
finals = st.floats(0, 1)


@st.composite
def lengths(draw):
    """(total, warmup) in steps, with at least one step after the warm-up."""
    warmup = draw(st.integers(0, 30))
    return warmup + draw(st.integers(1, 70)), warmup


def factors(schedule, length, final=0.0):
    total, warmup = length
    return [schedule(step, total, warmup, final) for step in range(total + 1)]


@each_schedule
@given(length=lengths(), final=finals)
def test_the_warm_up_is_a_straight_line_that_ends_at_the_full_rate(schedule, length, final):
    total, warmup = length
    assert factors(schedule, length, final)[:warmup] == [(step + 1) / warmup for step in range(warmup)]
    assert schedule(warmup, total, warmup, final) == pytest.approx(1, abs=1e-15)


@each_that_falls
@given(length=lengths(), final=finals)
def test_after_the_warm_up_it_falls_to_final_and_stays_there(schedule, length, final):
    total, warmup = length
    falling = factors(schedule, length, final)[warmup:]
    assert all(later <= earlier for earlier, later in pairwise(falling))
    assert falling[-1] == schedule(total + 1000, total, warmup, final) == pytest.approx(final, abs=1e-15)


@each_schedule
@given(length=lengths(), final=finals)
def test_it_never_jumps(schedule, length, final):
    total, warmup = length
    steepest = max(1 / max(1, warmup), pi / 2 * (1 - final) / (total - warmup))
    values = factors(schedule, length, final)
    assert all(abs(later - earlier) <= steepest + 1e-12 for earlier, later in pairwise(values))


@given(length=lengths(), final=finals)
def test_the_constant_schedule_stays_at_the_full_rate(length, final):
    total, warmup = length
    assert set(factors(warmup_constant, length, final)[warmup:]) == {1.0}
    assert warmup_constant(total + 1000, total, warmup, final) == 1


@given(tenth=st.integers(2, 30), final=finals)
def test_one_cycle_with_a_warm_up_of_45_percent_is_a_triangle_and_a_tail(tenth, final):
    total, warmup = 20 * tenth, 9 * tenth
    values = factors(warmup_one_cycle, (total, warmup), final)
    low = final + 0.1 * (1 - final)
    top, foot, end = values[warmup], values[2 * warmup], values[-1]
    assert (top, foot, end) == (1, pytest.approx(low), pytest.approx(final))
    for first, last in ((warmup, 2 * warmup), (2 * warmup, total)):
        slopes = [later - earlier for earlier, later in pairwise(values[first : last + 1])]
        assert slopes == pytest.approx([slopes[0]] * len(slopes), abs=1e-12)


@given(half=st.integers(1, 50), warmup=st.integers(0, 20), final=finals)
def test_the_line_and_the_cosine_are_half_way_down_in_the_middle(half, warmup, final):
    for schedule in (warmup_cosine, warmup_linear):
        assert schedule(warmup + half, warmup + 2 * half, warmup, final) == pytest.approx((1 + final) / 2)
