import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numbers_of import EPSILON, numbers, to

from tinyvit import functional as F

PAIRS = st.tuples(st.integers(1, 3), st.integers(1, 3))
POOLINGS = [F.max_pool2d, F.avg_pool2d]


@st.composite
def poolings(draw):
    """The shape of x, and kernel, stride and padding as the operations take them."""
    kernel, stride = draw(PAIRS), draw(st.none() | PAIRS)
    padding = tuple(draw(st.integers(0, k // 2)) for k in kernel)
    image = [max(1, k - 2 * p) + draw(st.integers(0, 7)) for k, p in zip(kernel, padding)]
    return (draw(st.integers(1, 2)), draw(st.integers(1, 3)), *image), (kernel, stride, padding)


def same(got, expected, dtype):
    assert str(got.dtype) == dtype and got.shape == expected.shape
    bound = EPSILON[dtype] + 1e-6
    np.testing.assert_allclose(got.get().astype("float64"), expected, rtol=bound, atol=bound)


@pytest.mark.parametrize("dtype", EPSILON)
@pytest.mark.parametrize("operation", POOLINGS)
@given(drawn=poolings(), seed=st.integers(0, 99), tied=st.booleans())
def test_poolings_and_their_backwards_are_those_of_the_reference(cupy, operation, dtype, drawn, seed, tied):
    shape, options = drawn
    x = numbers(*shape, dtype=dtype, seed=seed)
    x = np.sign(x) if tied else x
    y, cache = operation(to(cupy, x, dtype), *options)
    expected, c = operation.reference(x, *options)
    dy = numbers(*expected.shape, dtype=dtype, seed=seed + 1)
    same(y, expected, dtype)
    same(operation.backward(to(cupy, dy, dtype), cache), operation.backward.reference(dy, c), dtype)
    if operation is F.max_pool2d:
        np.testing.assert_array_equal(cache.place.get(), c.place)


def test_nan_counts_as_the_largest(cupy):
    x = numbers(2, 3, 5, 7)
    x[0, 1, 2, 3] = x[1, 2, 0, 0] = np.nan
    y, cache = F.max_pool2d(to(cupy, x), 3, 2, 1)
    expected, c = F.max_pool2d.reference(x, 3, 2, 1)
    np.testing.assert_array_equal(y.get(), expected)
    np.testing.assert_array_equal(cache.place.get(), c.place)


@pytest.mark.parametrize("dtype", EPSILON)
@given(shape=st.tuples(*[st.integers(1, 9)] * 4), seed=st.integers(0, 99))
def test_the_mean_of_each_map_and_its_backward_are_those_of_the_reference(cupy, dtype, shape, seed):
    x, dy = numbers(*shape, dtype=dtype, seed=seed), numbers(*shape[:2], dtype=dtype, seed=seed + 1)
    y, cache = F.global_avg_pool2d(to(cupy, x, dtype))
    expected, c = F.global_avg_pool2d.reference(x)
    same(y, expected, dtype)
    same(F.global_avg_pool2d_backward(to(cupy, dy, dtype), cache), F.global_avg_pool2d_backward.reference(dy, c), dtype)


@pytest.mark.parametrize("operation", POOLINGS)
def test_arrays_in_another_memory_order_are_read_correctly(cupy, operation):
    x = numbers(2, 3, 6, 5)
    turned = to(cupy, np.ascontiguousarray(x.transpose(0, 2, 3, 1))).transpose(0, 3, 1, 2)
    expected, c = operation.reference(x, 2)
    y, cache = operation(turned, 2)
    same(y, expected, "float32")
    dy = numbers(*expected.shape)
    flipped = to(cupy, np.ascontiguousarray(dy[..., ::-1]))[..., ::-1]
    same(operation.backward(flipped, cache), operation.backward.reference(dy, c), "float32")


@pytest.mark.parametrize("operation", POOLINGS)
def test_what_does_not_fit_is_refused_as_in_the_reference(cupy, operation):
    x, name = to(cupy, np.ones((1, 2, 3, 3))), operation.__name__
    with pytest.raises(ValueError, match=f"{name}: .*kernel"):
        operation(x, 4)
    with pytest.raises(ValueError, match=f"{name}: expected a padding of at most half the kernel 2×2, got 2×2"):
        operation(x, 2, 1, 2)
    with pytest.raises(ValueError, match="global_avg_pool2d: expected images"):
        F.global_avg_pool2d(x[0])


def test_the_order_of_the_threads_changes_no_bit(cupy, any_order):
    x = to(cupy, numbers(2, 3, 9, 9))
    for operation in POOLINGS:
        y, cache = operation(x, 3, 2, 1)
        operation.backward(y, cache)
    y, cache = F.global_avg_pool2d(x)
    F.global_avg_pool2d_backward(y, cache)
