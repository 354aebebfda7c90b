import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numbers_of import EPSILON, numbers, to

from tinyvit.functional.sums import finish_sums, sums_together
from tinyvit.kernels.cuda.column_sums import AT_ONCE, MOST, add_column_sums

ROWS = st.integers(0, 9) | st.sampled_from([AT_ONCE, AT_ONCE + 1, 2 * AT_ONCE - 3])


@pytest.mark.parametrize("dtype", EPSILON)
@given(rows=ROWS, columns=st.integers(0, 40) | st.sampled_from([128, 264, 300]), seed=st.integers(0, 99))
def test_column_sums_are_those_of_numpy_and_are_added_to_what_is_there(cupy, dtype, rows, columns, seed):
    x, before = numbers(rows, columns, dtype=dtype, seed=seed), numbers(columns, seed=seed)
    into, there = to(cupy, before), to(cupy, x, dtype)
    alone = add_column_sums(there)
    assert add_column_sums(there, into) is into and add_column_sums(there, False) is None
    assert alone.dtype == into.dtype == "float32"
    np.testing.assert_allclose(alone.get(), x.sum(0), rtol=1e-5, atol=1e-5 * (1 + rows**0.5))
    np.testing.assert_allclose(into.get(), before + x.sum(0), rtol=1e-5, atol=1e-5 * (1 + rows**0.5))


def test_sums_over_very_many_rows_keep_their_digits_and_leave_other_layouts_alone(cupy):
    x = numbers(100 * MOST + 7, 5)
    for total in (cupy.zeros((5, 2), "float32")[:, 0], cupy.zeros(5, "float64")):
        sums = add_column_sums(to(cupy, x), total)
        assert sums is not total and not total.get().any()
        np.testing.assert_allclose(sums.get(), x.sum(0), rtol=0, atol=1e-4)


def test_sums_that_are_left_are_added_together_and_have_the_same_bits(cupy):
    flat, rows = cupy.zeros(500, "float32"), [to(cupy, numbers(AT_ONCE + 9, D, seed=D)) for D in (5, 64, 100)]
    goals = flat[7:12], flat[64:128], flat[200:300]
    with sums_together(flat):
        for matrix, goal in zip(rows, goals, strict=True):
            add_column_sums(matrix, goal)
        assert not flat.get().any()
        finish_sums()
        np.testing.assert_array_equal(goals[1].get(), add_column_sums(rows[1]).get())
        add_column_sums(rows[1], goals[1])
        add_column_sums(rows[1], goals[1])  # again: the one before is added first
        other = cupy.zeros(64, "float32")
        np.testing.assert_array_equal(add_column_sums(rows[1], other).get(), other.get())
        assert other.get().any()  # no part of the flat array
    alone = [add_column_sums(matrix).get() for matrix in rows]
    for goal, sums, times in zip(goals, alone, (1, 3, 1), strict=True):
        np.testing.assert_allclose(goal.get(), times * sums, rtol=1e-6)
    assert np.count_nonzero(flat.get()) == 169


def test_an_error_inside_leaves_nothing_for_later(cupy):
    flat = cupy.zeros(5, "float32")
    with pytest.raises(KeyError), sums_together(flat):
        add_column_sums(to(cupy, numbers(AT_ONCE + 9, 5)), flat)
        raise KeyError
    finish_sums()
    assert not flat.get().any()
