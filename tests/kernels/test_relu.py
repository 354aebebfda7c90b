import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from strategies import normals

from tinyvit import functional as F
from tinyvit.functional.chunks import CHUNK

SPECIAL = np.array([-np.inf, -1, -0.0, 0, 1, np.inf, np.nan])


@given(arrays=st.integers(1, 3).flatmap(lambda axes: normals((3, 5, 2)[:axes], (3, 5, 2)[:axes])))
def test_the_kernel_is_bit_for_bit_the_reference_in_any_memory_order(arrays):
    x, dy = arrays
    y, cache = F.relu(x)
    expected, reference_cache = F.relu.reference(x)
    np.testing.assert_array_equal(y, expected, strict=True)
    dx = F.relu_backward(dy, cache)
    np.testing.assert_array_equal(dx, F.relu_backward.reference(dy, reference_cache), strict=True)


def test_arrays_of_many_pieces_and_without_axes_are_those_of_the_reference():
    for x in (np.random.default_rng(0).standard_normal(3 * CHUNK + 5), np.array(-2.0)):
        _, cache = F.relu(x)
        dy = np.ones(x.shape)
        np.testing.assert_array_equal(F.relu_backward(dy, cache), F.relu_backward.reference(dy, cache), strict=True)


def test_infinity_and_nan_are_treated_as_in_the_reference():
    for dtype in ("float32", "float64"):
        x, dy = (grid.ravel().astype(dtype) for grid in np.meshgrid(SPECIAL, SPECIAL))
        y, cache = F.relu(x)
        np.testing.assert_array_equal(y, F.relu.reference(x)[0])
        dx = F.relu_backward(dy, cache)
        np.testing.assert_array_equal(dx, F.relu_backward.reference(dy, F.relu.reference(x)[1]), strict=True)
