from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import SIZES, normals, seeds

from tinyvit import functional as F
from tinyvit import gradcheck

POOLINGS = pytest.mark.parametrize("pool", [F.max_pool2d, F.avg_pool2d])


@st.composite
def pooled(draw, dtype="float64"):
    """x (B, C, H, W) and the options of a pooling, with windows that overlap, touch or leave pixels out."""
    kernel, stride = (draw(st.tuples(st.integers(1, 4), st.integers(1, 4))) for _ in range(2))
    padding = tuple(draw(st.integers(0, side // 2)) for side in kernel)
    image = [max(1, k - 2 * p) + draw(st.integers(0, 4)) for k, p in zip(kernel, padding)]
    (x,) = draw(normals((draw(SIZES), draw(SIZES), *image), dtype=dtype))
    return x, {"kernel_size": kernel, "stride": stride, "padding": padding}


@POOLINGS
@given(drawn=pooled(), seed=seeds())
def test_gradients_match_the_complex_step(pool, drawn, seed):
    x, options = drawn
    report = gradcheck.check(partial(pool, **options), pool.backward, (x,), directions=3, seed=seed)
    assert report.max_error < 1e-10, report


@POOLINGS
@given(drawn=pooled())
def test_every_number_is_the_largest_or_the_mean_of_its_window(pool, drawn):
    x, options = drawn
    (p, q), (down, right), (top, left) = options.values()
    reduce, around = {F.max_pool2d: (np.max, -np.inf), F.avg_pool2d: (np.mean, 0)}[pool]
    padded = np.pad(x, ((0, 0), (0, 0), (top, top), (left, left)), constant_values=around)
    y, _ = pool(x, **options)
    for i, j in np.ndindex(*y.shape[2:]):
        window = padded[:, :, i * down : i * down + p, j * right : j * right + q]
        np.testing.assert_allclose(y[:, :, i, j], reduce(window, (2, 3)), atol=1e-14)


@POOLINGS
def test_the_stride_is_by_default_the_size_of_the_kernel(pool):
    x = np.random.default_rng(0).standard_normal((2, 3, 7, 6))
    np.testing.assert_array_equal(pool(x, (3, 2))[0], pool(x, (3, 2), (3, 2))[0], strict=True)
    assert pool(x, 3)[0].shape == (2, 3, 2, 2)


@POOLINGS
@pytest.mark.parametrize("x, options, message", [
    (np.ones((3, 5, 5)), (2,), r"expected images x \(B, C, H, W\), got \(3, 5, 5\)"),
    (np.ones((1, 3, 2, 5)), (3,), "expected a kernel that fits the padded images 2×5, got 3×3"),
    (np.ones((1, 3, 5, 5)), (3, 1, 2), "expected a padding of at most half the kernel 3×3, got 2×2"),
    (np.ones((1, 3, 5, 5)), (0,), r"expected kernel as an int of at least 1 or \(height, width\), got 0"),
    (np.ones((1, 3, 5, 5)), (2, 0), r"expected stride as an int of at least 1 or \(height, width\), got 0"),
])  # fmt: skip
def test_what_does_not_fit_is_refused_in_words(pool, x, options, message):
    with pytest.raises(ValueError, match=f"{pool.__name__}: {message}"):
        pool(x, *options)


def test_of_equal_numbers_the_first_gets_the_gradient():
    _, cache = F.max_pool2d(np.ones((1, 1, 4, 4)), 2)
    dx = F.max_pool2d_backward(np.ones((1, 1, 2, 2)), cache)
    np.testing.assert_array_equal(dx[0, 0, :2], [[1, 0, 1, 0], [0, 0, 0, 0]])


def test_nan_is_never_pooled_away():
    x = np.ones((1, 1, 3, 9))
    x[0, 0, 1, ::3] = np.nan
    for pool in (F.max_pool2d, F.avg_pool2d):
        assert np.isnan(pool(x, 3, 1, 1)[0]).sum() == 3 * 9 - 3


@given(drawn=normals((2, 3, 4, 5), dtype="float64"), seed=seeds())
def test_global_pooling_is_the_mean_of_each_map(drawn, seed):
    np.testing.assert_allclose(F.global_avg_pool2d(*drawn)[0], drawn[0].mean((2, 3)), atol=1e-14)
    report = gradcheck.check(F.global_avg_pool2d, F.global_avg_pool2d_backward, drawn, seed=seed)
    assert report.max_error < 1e-10, report


@pytest.mark.parametrize("shape", [(2, 3), (2, 3, 0, 4)])
def test_global_pooling_needs_a_pixel(shape):
    with pytest.raises(ValueError, match="global_avg_pool2d: expected images x .* of at least one pixel, got"):
        F.global_avg_pool2d(np.ones(shape))
