import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numbers_of import numbers, to

from tinyvit.functional.flat import move_average, squared_norm
from tinyvit.kernels.cuda.flat import BLOCK, MAX_BLOCKS

SIZES = st.integers(0, 40) | st.sampled_from([1023, 1024, 1029, 5 * BLOCK])


@given(size=SIZES, start=st.integers(0, 4), seed=st.integers(0, 99), scale=st.sampled_from([1e-9, 1.0, 1e9]))
def test_the_squared_norm_is_that_of_numpy(cupy, size, start, seed, scale):
    x = np.float32(numbers(size + start, seed=seed, scale=scale)).astype("float64")
    got = squared_norm(to(cupy, x)[start:])
    assert got.shape == () and got.dtype == "float32"
    np.testing.assert_allclose(got.get(), (x[start:] ** 2).sum(), rtol=1e-6, atol=1e-37)


def test_a_norm_that_many_blocks_share_keeps_its_digits_and_shows_what_is_not_finite(cupy):
    for size in (4 * BLOCK * MAX_BLOCKS + 4 * BLOCK, BLOCK * MAX_BLOCKS + 3):
        x = numbers(size)
        np.testing.assert_allclose(squared_norm(to(cupy, x)).get(), (x * x).sum(), rtol=1e-6)
    for bad in (np.nan, np.inf):
        x[700] = bad
        assert not np.isfinite(squared_norm(to(cupy, x)).get())


@pytest.mark.parametrize("on_device", [False, True])
@given(size=SIZES, start=st.integers(0, 4), share=st.floats(0, 1, width=32), seed=st.integers(0, 99))
def test_an_average_moves_as_in_the_reference(cupy, on_device, size, start, share, seed):
    e, x = numbers(2, start + size, seed=seed)
    average = to(cupy, e)[start:]
    move_average(average, to(cupy, x)[start:], cupy.asarray(np.float32(share)) if on_device else share)
    move_average.reference(e[start:], x[start:], share)
    np.testing.assert_allclose(average.get(), e[start:], rtol=1e-6, atol=1e-6)


def test_arrays_of_other_strides_are_read_and_changed_in_place_too(cupy):
    e, x = numbers(2, 40, 2)
    average = to(cupy, e)
    move_average(average[:, 0], to(cupy, x)[:, 0], 0.25)
    np.testing.assert_allclose(average.get()[:, 0], e[:, 0] + 0.25 * (x - e)[:, 0], rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(average.get()[:, 1], np.float32(e[:, 1]))
    np.testing.assert_allclose(squared_norm(to(cupy, x)[:, 1]).get(), (x[:, 1] ** 2).sum(), rtol=1e-6)
