import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinyvit.bench.figures import best_rate, floor_seconds, middle, quartiles, quotient, ratio

times = st.lists(st.floats(1e-3, 10), min_size=1, max_size=12)


@given(ours=times, factor=st.floats(0.1, 10))
def test_a_constant_multiple_of_our_time_gives_that_ratio_whatever_the_noise(ours, factor):
    assert ratio([factor * time for time in ours], ours) == pytest.approx(factor)


@given(pairs=st.lists(st.tuples(st.floats(1e-3, 10), st.floats(1e-3, 10)), min_size=1, max_size=9))
def test_a_ratio_the_other_way_round_is_its_inverse_in_an_odd_number_of_rounds(pairs):
    pairs = pairs[: len(pairs) - (len(pairs) + 1) % 2]
    ours, theirs = zip(*pairs)
    assert ratio(theirs, ours) * ratio(ours, theirs) == pytest.approx(1)


def test_a_ratio_compares_rounds_and_not_medians():
    assert ratio([2.0, 20.0, 4.0], [1.0, 10.0, 1.0]) == 2.0
    assert middle([2.0, 20.0, 4.0]) / middle([1.0, 10.0, 1.0]) == 4.0


def test_rounds_that_one_of_them_missed_do_not_count():
    assert ratio([2.0, None, 6.0, 9.0], [1.0, 1.0, 2.0, None]) == 2.5
    assert ratio([None, 1.0], [1.0, None]) is None


def test_median_and_quartiles_of_given_times():
    assert middle([3.0, None, 1.0, 2.0]) == 2.0
    assert quartiles([1.0, 2.0, 3.0, 4.0, 5.0, None]) == [2.0, 4.0]
    assert quartiles([7.0]) == [7.0, 7.0]
    assert middle([None]) is None and quartiles([None]) is None


def test_the_best_rate_is_the_median_over_rounds_of_the_better_librarys_rate():
    assert best_rate([[1e9, 5e9, 3e9], [2e9, 1e9, None]]) == 3e9
    assert best_rate([[None], [None]]) is None and best_rate([]) is None


def test_the_floor_is_two_operations_for_each_multiply_add_at_that_rate():
    assert floor_seconds(70e9, 280e9) == 0.5
    assert quotient(floor_seconds(70e9, 280e9), 0.625) == 0.8
    assert floor_seconds(70e9, None) is None
    assert quotient(None, 1.0) is None and quotient(1.0, None) is None
