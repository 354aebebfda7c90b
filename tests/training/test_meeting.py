"""Batch norm over threads: every part of a batch is normalised as the whole."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest
from batch_normed import Normed, batch
from hypothesis import given
from hypothesis import strategies as st
from strategies import seeds

from tinyvit import Context, Key, nn, optim
from tinyvit.training import train_step
from tinyvit.training.meeting import BrokenExchange, Meeting
from tinyvit.training.threads import map_threads

TRAINING = Context(training=True, key=Key(0))


def trained(images, labels, steps=3, **options):
    """Every parameter, buffer and loss after some steps."""
    model = Normed()
    optimizer = optim.SGD(model, 0.1)
    losses = [train_step(model, optimizer, images, labels, TRAINING, **options).loss for _ in range(steps)]
    return model.state_dict() | {"losses": np.array(losses)}


def assert_same(got, expected, **tolerance):
    for name, array in expected.items():
        np.testing.assert_allclose(got[name], array, err_msg=name, **tolerance)


@pytest.mark.end_to_end
@given(size=st.integers(1, 9), seed=seeds(), threads=st.integers(2, 5), accumulate=st.integers(1, 3))
def test_any_number_of_threads_and_parts_trains_the_same_model(size, seed, threads, accumulate):
    images, labels = batch(size, seed)
    alone = trained(images, labels, threads=1)
    assert_same(trained(images, labels, threads=threads, accumulate=accumulate), alone, rtol=1e-9, atol=1e-11)


def test_the_same_number_of_threads_gives_the_same_bits():
    runs = [trained(*batch(9), threads=3) for _ in range(4)]
    for run in runs[1:]:
        for name, array in runs[0].items():
            np.testing.assert_array_equal(run[name], array, err_msg=name)


@pytest.mark.parametrize("failing", [0, 1, 2])
def test_an_error_in_one_part_ends_all_and_is_the_one_that_is_raised(failing):
    images, labels = batch(3)
    images[failing] += 100

    def objective(model, images, labels, ctx):
        if images.mean() > 50:
            raise KeyError("of its own")
        logits, cache = model(images, ctx)
        return logits.mean(), lambda dloss: model.backward(np.full(logits.shape, dloss / logits.size), cache), {}

    model = Normed()
    with pytest.raises(KeyError, match="of its own"):
        train_step(model, optim.SGD(model, 0.1), images, labels, TRAINING, objective=objective, threads=3)


def test_a_part_that_calls_the_model_less_often_is_an_error_and_no_deadlock():
    images, labels = batch(2)
    images[0] += 100

    def objective(model, images, labels, ctx):
        for _ in range(1 if images.mean() > 50 else 2):
            logits, cache = model(images, ctx)
        return logits.mean(), lambda dloss: logits, {}, nn.buffer_updates(cache)

    model = Normed()
    with pytest.raises(BrokenExchange, match="must call the model equally often for every part"):
        train_step(model, optim.SGD(model, 0.1), images, labels, TRAINING, objective=objective, threads=2)


def test_two_trainings_at_a_time_do_not_wait_for_each_other_forever():
    expected = trained(*batch(8), steps=20, threads=2)
    with ThreadPoolExecutor(3) as pool:
        for run in [pool.submit(partial(trained, *batch(8), steps=20, threads=2)) for _ in range(3)]:
            assert_same(run.result(120), expected, rtol=0, atol=0)


def test_a_training_inside_a_piece_takes_its_batch_in_one():
    expected = trained(*batch(8), threads=1)
    for run in map_threads(lambda _: trained(*batch(8), threads=2), range(2), 2):
        assert_same(run, expected, rtol=0, atol=0)


@given(parts=st.integers(2, 6), calls=st.integers(1, 5))
def test_every_part_gets_the_values_of_all_in_their_order(parts, calls):
    meeting = Meeting(parts)

    def run(part):
        return [meeting.exchange(part, (part, call)) for call in range(calls)]

    expected = [[(part, call) for part in range(parts)] for call in range(calls)]
    assert map_threads(run, range(parts), parts, meeting=meeting) == [expected] * parts


def test_pieces_that_meet_are_refused_where_they_would_wait_for_each_other_forever():
    def inner(_):
        return map_threads(lambda piece: piece, range(2), 2, meeting=Meeting(2))

    with pytest.raises(ValueError, match="can't follow one another in the same thread"):
        map_threads(inner, range(2), 2)
