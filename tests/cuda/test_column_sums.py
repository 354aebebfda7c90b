import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numbers_of import EPSILON, numbers, to

from tinyvit.kernels.cuda.column_sums import MAX_BLOCKS, MAX_SINGLE_ROWS, add_column_sums

ROWS = st.integers(0, 9) | st.sampled_from([MAX_SINGLE_ROWS, MAX_SINGLE_ROWS + 1, 2 * MAX_SINGLE_ROWS - 3])


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
    x = numbers(100 * MAX_BLOCKS + 7, 5)
    for total in (cupy.zeros((5, 2), "float32")[:, 0], cupy.zeros(5, "float64")):
        sums = add_column_sums(to(cupy, x), total)
        assert sums is not total and not total.get().any()
        np.testing.assert_allclose(sums.get(), x.sum(0), rtol=0, atol=1e-4)
