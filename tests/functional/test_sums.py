import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import normals, seeds

from tinyvit.functional.sums import sum_first, sum_rows, sum_to_shape


@given(rows=st.integers(0, 1000), dtype=st.sampled_from(["float64", "complex128"]), seed=seeds())
def test_a_sum_in_stages_is_the_sum(rows, dtype, seed):
    x = np.random.default_rng(seed).standard_normal((rows, 2, 3)).astype(dtype)
    np.testing.assert_allclose(sum_first(x), x.sum(0), atol=1e-12)
    np.testing.assert_allclose(sum_rows(x), x.sum((0, 1)), atol=1e-12)


def test_a_float32_sum_of_many_rows_keeps_its_digits():
    x = np.random.default_rng(0).random((100_000, 8)).astype("float32")
    exact = x.astype("float64").sum(0)
    assert np.abs(sum_rows(x) / exact - 1).max() < 3e-7 < np.abs(x.sum(0) / exact - 1).max()


@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (1, 3, 1, 5), (3, 4, 5), (1, 5), (4, 1), (5,), (1,), (), (1, 1, 1, 1)])
@given(arrays=normals((2, 3, 4, 5), dtype="float64"))
def test_summing_to_a_shape_undoes_broadcasting(shape, arrays):
    (x,) = arrays
    # <broadcast(a), x> = <a, summed(x)> for every a
    a = np.random.default_rng(0).standard_normal(shape)
    summed = sum_to_shape(x, shape)
    assert summed.shape == shape
    np.testing.assert_allclose((a * summed).sum(), (np.broadcast_to(a, x.shape) * x).sum(), atol=1e-12)
