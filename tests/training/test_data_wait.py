import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinyvit.training.data_wait import DataWait

seconds = st.lists(st.tuples(st.integers(0, 100), st.integers(0, 100)), min_size=1, max_size=8)


class Clock:
    """A clock that shows only the time spent by the test."""

    now = 0.0

    def __call__(self):
        return self.now


def take(wait, clock, spent):
    """Iterate over batches that take `spent`: seconds to load each, seconds of its step."""

    def batches():
        for waited, worked in spent:
            clock.now += waited
            yield worked

    for worked in wait.watch(batches()):
        clock.now += worked


@given(spent=seconds)
def test_the_share_is_that_of_the_time_until_a_batch_was_had(spent):
    clock = Clock()
    wait = DataWait(clock=clock)
    take(wait, clock, spent)
    waited, worked = map(sum, zip(*spent))
    assert wait.of_epoch == wait.of_training == pytest.approx(waited / (waited + worked) if waited + worked else 0)


@given(first=seconds, second=seconds)
def test_an_epoch_counts_for_itself_and_the_training_for_all(first, second):
    clock = Clock()
    wait, whole = DataWait(clock=clock), DataWait(clock=clock)
    take(wait, clock, first)
    wait.end_epoch()
    clock.now += 1000  # evaluation counts as neither
    take(wait, clock, second)
    take(whole, clock, second)
    assert wait.of_epoch == whole.of_epoch
    take(whole, clock, first)
    assert wait.of_training == pytest.approx(whole.of_training)


@given(first=seconds, second=seconds)
def test_it_continues_from_its_state(first, second):
    clock = Clock()
    wait, whole = DataWait(clock=clock), DataWait(clock=clock)
    take(wait, clock, first)
    resumed = DataWait(**wait.state(), clock=clock)
    take(resumed, clock, second)
    take(whole, clock, first)
    take(whole, clock, second)
    assert resumed.state() == whole.state()


def test_the_batches_are_passed_on_unchanged():
    assert list(DataWait().watch(iter("abc"))) == ["a", "b", "c"]


def test_before_the_first_batch_the_share_is_zero():
    assert DataWait().of_epoch == DataWait().of_training == 0
