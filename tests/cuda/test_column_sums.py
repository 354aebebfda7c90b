import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numbers_of import DTYPE, EPSILON, numbers, to

from tinyvit.kernels.cuda.column_sums import AT_ONCE, MOST, add_column_sums, add_column_sums_of

ROWS = st.integers(0, 9) | st.sampled_from([AT_ONCE - 1, AT_ONCE, AT_ONCE + 1, 2 * AT_ONCE - 3])
COLUMNS = st.integers(0, 40) | st.sampled_from([127, 128, 256, 264, 300])


@pytest.mark.parametrize("dtype", EPSILON)
@given(rows=ROWS, columns=COLUMNS, seed=st.integers(0, 99))
def test_column_sums_are_those_of_numpy_and_are_added_to_what_is_there(cupy, dtype, rows, columns, seed):
    x, before = numbers(rows, columns, dtype=dtype, seed=seed), numbers(columns, seed=seed)
    into = to(cupy, before)
    alone = add_column_sums(to(cupy, x, dtype))
    assert add_column_sums(to(cupy, x, dtype), into) is into
    assert alone.dtype == into.dtype == "float32"
    np.testing.assert_allclose(alone.get(), x.sum(0), rtol=1e-5, atol=1e-5 * (1 + rows**0.5))
    np.testing.assert_allclose(into.get(), before + x.sum(0), rtol=1e-5, atol=1e-5 * (1 + rows**0.5))


@given(rows=ROWS, columns=COLUMNS, wanted=st.tuples(st.booleans(), st.booleans()))
def test_column_sums_of_a_matrix_that_needs_none_are_left_out(cupy, rows, columns, wanted):
    pair = numbers(2, rows, columns)
    sums = add_column_sums_of(to(cupy, pair), tuple(None if want else False for want in wanted))
    for got, want, matrix in zip(sums, wanted, pair, strict=True):
        if want:
            np.testing.assert_allclose(got.get(), matrix.sum(0), rtol=1e-5, atol=1e-4)
        else:
            assert got is None


def test_sums_over_very_many_rows_keep_their_digits(cupy):
    x = numbers(100 * MOST + 7, 5)
    np.testing.assert_allclose(add_column_sums(to(cupy, x)).get(), x.sum(0), rtol=0, atol=1e-4)


def test_for_an_array_of_another_layout_or_dtype_the_sums_are_in_a_new_one(cupy):
    x = numbers(9, 6)
    for total in (cupy.zeros((6, 2), "float32")[:, 0], cupy.zeros(6, "float64")):
        sums = add_column_sums(to(cupy, x), total)
        assert sums is not total and not total.get().any()
        np.testing.assert_allclose(sums.get(), x.sum(0), rtol=1e-5)



def test_no_sums_are_computed_where_none_are_needed(cupy):
    assert add_column_sums(to(cupy, numbers(9, 6)), False) is None


def test_the_order_of_the_threads_changes_no_bit(cupy, any_order):
    for dtype in DTYPE:
        add_column_sums(to(cupy, numbers(AT_ONCE + 9, 264, dtype=dtype), dtype))
