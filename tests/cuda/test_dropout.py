import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numbers_of import EPSILON, numbers, to

from tinyvit import Key
from tinyvit import functional as F

OPERATIONS = pytest.mark.parametrize("drop", [F.dropout, F.drop_path], ids=lambda drop: drop.__name__)
SHAPES = st.lists(st.integers(0, 9) | st.sampled_from([16, 31]), min_size=1, max_size=3).map(tuple)
RATES = st.sampled_from([0.01, 0.3, 0.9])
KEYS = st.builds(Key, seed=st.integers(0, 99), step=st.integers(0, 9), sample=st.integers(0, 2**40))


@OPERATIONS
@pytest.mark.parametrize("dtype", EPSILON)
@given(shape=SHAPES, rate=RATES, key=KEYS)
def test_dropout_drops_what_the_reference_drops_bit_for_bit(cupy, drop, dtype, shape, rate, key):
    x, dy = numbers(2, *shape, dtype=dtype)
    y, cache = drop(to(cupy, x, dtype), rate, key)
    dx = drop.backward(to(cupy, dy, dtype), cache)
    expected, c = drop.reference(x.astype("float32"), rate, key)
    assert y.dtype == dx.dtype == dtype and cache.mask.dtype == bool
    np.testing.assert_array_equal(cache.mask.get(), c.mask)
    np.testing.assert_array_equal(y.get(), to(cupy, expected, dtype).get())
    wanted = drop.backward.reference(dy.astype("float32"), c)
    np.testing.assert_array_equal(dx.get(), to(cupy, wanted, dtype).get())


@OPERATIONS
@given(key=KEYS, rows=st.integers(1, 9), first=st.integers(0, 9))
def test_the_mask_of_a_sample_does_not_depend_on_how_the_batch_was_split(cupy, drop, key, rows, first):
    x = to(cupy, numbers(first + rows, 7))
    whole, _ = drop(x, 0.5, key)
    part, _ = drop(x[first:], 0.5, key.skip(first))
    np.testing.assert_array_equal(part.get(), whole.get()[first:])


@OPERATIONS
@pytest.mark.parametrize("arguments", [(0.0, Key(0)), (0.5, None)])
def test_without_a_rate_or_a_key_the_input_is_returned_unchanged(cupy, drop, arguments):
    x = to(cupy, numbers(3, 4), "bfloat16")
    y, cache = drop(x, *arguments)
    assert y is x and cache.mask is None and drop.backward(x, cache) is x


@OPERATIONS
def test_an_int_is_taken_as_a_seed_and_a_rate_of_one_is_refused(cupy, drop):
    x = to(cupy, numbers(30, 4))
    np.testing.assert_array_equal(drop(x, 0.5, 3)[0].get(), drop(x, 0.5, Key(3))[0].get())
    with pytest.raises(ValueError, match="the rate of dropout must be at least 0 and below 1, got 1"):
        drop(to(cupy, numbers(3, 4), "bfloat16"), 1, Key(0))


@OPERATIONS
def test_arrays_in_any_memory_order_are_read_correctly(cupy, drop):
    x = numbers(8, 4, 6)
    y, _ = drop(to(cupy, x).transpose(1, 2, 0), 0.5, 1)
    expected, _ = drop.reference(x.astype("float32").transpose(1, 2, 0), 0.5, 1)
    np.testing.assert_array_equal(y.get(), expected)


@OPERATIONS
def test_gradients_of_another_dtype_take_the_reference(cupy, drop):
    x = numbers(8, 6)
    _, cache = drop(to(cupy, x), 0.5, 1)
    dx = drop.backward(cupy.asarray(x), cache)
    _, c = drop.reference(x.astype("float32"), 0.5, 1)
    assert dx.dtype == "float64"
    np.testing.assert_array_equal(dx.get(), drop.backward.reference(x, c))


@OPERATIONS
def test_the_order_of_the_threads_changes_no_bit(cupy, any_order, drop):
    drop(to(cupy, numbers(9, 77)), 0.5, 1)
