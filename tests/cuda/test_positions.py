import numpy as np
import pytest
from hypothesis import given
from numbers_of import EPSILON, numbers, to
from test_tokens import SEEDS, SHAPES, assert_close

from tinyvit import functional as F
from tinyvit.kernels.cuda import positions as kernel


@pytest.mark.parametrize("dtype", EPSILON)
@given(shape=SHAPES, seed=SEEDS)
def test_positions_are_added_to_every_sample_and_get_the_sum_of_its_gradients(cupy, dtype, shape, seed):
    x, dy = numbers(2, *shape, dtype=dtype, seed=seed)
    positions = numbers(1, *shape[1:], seed=seed)
    y, cache = F.add_positions(to(cupy, x, dtype), to(cupy, positions))
    dx, dpositions = F.add_positions_backward(to(cupy, dy, dtype), cache)
    assert_close(y, x + positions, dtype)
    assert_close(dx, dy, dtype)
    assert_close(dpositions, dy.sum(0, keepdims=True), "float32", rounding=4)


def test_the_positions_gradient_is_added_into_the_given_array_or_left_out(cupy):
    dy, before = numbers(100, 5, 8), numbers(1, 5, 8, seed=1)
    _, cache = F.add_positions(to(cupy, dy), to(cupy, before))
    for into in (to(cupy, before), to(cupy, before.transpose(2, 1, 0)).transpose(2, 1, 0)):
        _, dpositions = F.add_positions_backward(to(cupy, dy), cache, into=(into,))
        assert dpositions is into
        np.testing.assert_allclose(into.get(), before + dy.sum(0, keepdims=True), rtol=1e-5, atol=1e-5)
    assert F.add_positions_backward(to(cupy, dy), cache, into=(False,))[1] is None
    with pytest.raises(ValueError, match=r"into=: expected an array \(1, 5, 8\) to add to, got \(1, 5, 7\)"):
        F.add_positions_backward(to(cupy, dy), cache, into=(cupy.zeros((1, 5, 7), "float32"),))


def test_more_samples_than_a_grid_is_high_are_processed_in_turns(cupy, monkeypatch):
    monkeypatch.setattr(kernel, "MOST_SAMPLES", 3)
    x, positions = numbers(8, 3, 5), numbers(1, 3, 5, seed=1)
    assert_close(F.add_positions(to(cupy, x), to(cupy, positions))[0], x + positions, "float32")


def test_positions_of_another_shape_are_refused(cupy):
    with pytest.raises(ValueError, match=r"expected positions \(1, 3, 4\), got \(1, 2, 4\)"):
        F.add_positions(to(cupy, numbers(2, 3, 4)), to(cupy, numbers(1, 2, 4)))


@pytest.mark.parametrize("dtype", EPSILON)
def test_the_order_of_the_threads_changes_no_bit(cupy, any_order, dtype):
    y, cache = F.add_positions(to(cupy, numbers(70, 3, 16, dtype=dtype), dtype), to(cupy, numbers(1, 3, 16)))
    F.add_positions_backward(y, cache)
