import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import SIZES, normals, seeds

from tinyvit import functional as F
from tinyvit import gradcheck

PAIRS = st.tuples(st.integers(1, 3), st.integers(1, 3))
MARGINS = st.tuples(st.integers(0, 3), st.integers(0, 3))


@st.composite
def convolutions(draw, dtype="float64"):
    """(x, weight and perhaps bias) and the options of a convolution: all sizes odd and even."""
    groups, each, filters = (draw(st.integers(1, 3)) for _ in range(3))
    kernel, stride, padding = draw(PAIRS), draw(PAIRS), draw(MARGINS)
    image = [max(1, k - 2 * p) + draw(st.integers(0, 5)) for k, p in zip(kernel, padding)]
    shapes = (draw(SIZES), groups * each, *image), (groups * filters, each, *kernel), (groups * filters,)
    arrays = draw(normals(*shapes[: draw(st.integers(2, 3))], dtype=dtype))
    return arrays, {"stride": stride, "padding": padding, "groups": groups}


@given(drawn=convolutions(), seed=seeds())
def test_gradients_match_the_complex_step(drawn, seed):
    arrays, options = drawn
    forward = lambda *arrays: F.conv2d(*arrays, **options)  # noqa: E731
    report = gradcheck.check(forward, F.conv2d_backward, arrays, directions=3, seed=seed)
    assert report.max_error < 1e-10, report


@given(drawn=convolutions())
def test_every_number_is_the_dot_product_of_a_filter_and_its_window(drawn):
    (x, weight, *bias), options = drawn
    (down, right), (top, left) = options["stride"], options["padding"]
    padded = np.pad(x, ((0, 0), (0, 0), (top, top), (left, left)))
    y, _ = F.conv2d(x, weight, *bias, **options)
    each, per_group = weight.shape[1], len(weight) // options["groups"]
    for b, o, i, j in np.ndindex(*y.shape):
        first = o // per_group * each
        rows, columns = slice(i * down, i * down + weight.shape[2]), slice(j * right, j * right + weight.shape[3])
        window = padded[b, first : first + each, rows, columns]
        np.testing.assert_allclose(y[b, o, i, j], (window * weight[o]).sum() + sum(c[o] for c in bias), atol=1e-12)


@given(drawn=convolutions())
def test_no_image_depends_on_another(drawn):
    (x, *parameters), options = drawn
    alone = [F.conv2d(image[None], *parameters, **options)[0] for image in x]
    np.testing.assert_allclose(np.concatenate(alone), F.conv2d(x, *parameters, **options)[0], atol=1e-12)


@given(arrays=normals((2, 3, 6, 7), (4, 3, 3, 3), dtype="float64"), dy=st.integers(0, 2), dx=st.integers(0, 2))
def test_a_shifted_image_gives_the_shifted_result(arrays, dy, dx):
    x, weight = arrays
    y, _ = F.conv2d(x, weight)
    shifted, _ = F.conv2d(x[:, :, dy:, dx:], weight)
    np.testing.assert_allclose(shifted, y[:, :, dy:, dx:], atol=1e-12)


@given(arrays=normals((2, 3, 4, 6), (5, 3, 2, 3), (5,), dtype="float64"))
def test_a_stride_of_the_kernels_size_is_patchify_and_a_linear_layer(arrays):
    x, weight, bias = arrays
    tokens, _ = F.linear(F.patchify(x, (2, 3))[0], weight.reshape(5, -1), bias)
    y, _ = F.conv2d(x, weight, bias, stride=(2, 3))
    np.testing.assert_allclose(y.reshape(2, 5, -1).mT, tokens, atol=1e-12)


@given(drawn=convolutions())
def test_gradients_are_added_into_the_given_arrays_or_left_out(drawn):
    arrays, options = drawn
    y, cache = F.conv2d(*arrays, **options)
    dy = np.cos(np.arange(y.size)).reshape(y.shape)
    dx, *gradients = F.conv2d_backward(dy, cache)
    totals = [np.ones_like(gradient) for gradient in gradients]
    added = F.conv2d_backward(dy, cache, into=totals)
    np.testing.assert_array_equal(added[0], dx)
    for goal, got, gradient in zip(totals, added[1:], gradients, strict=True):
        assert got is goal
        np.testing.assert_allclose(goal, 1 + gradient, atol=1e-12)
    left_out = F.conv2d_backward(dy, cache, into=(False,) * len(gradients))
    np.testing.assert_allclose(left_out[0], dx, atol=1e-12)
    assert left_out[1:] == (None,) * len(gradients)


X, WEIGHT = np.ones((2, 4, 5, 5)), np.ones((6, 4, 3, 3))
REFUSED = [
    ((X[0], WEIGHT), {}, r"expected images x \(B, C, H, W\) and weight"),
    ((X, WEIGHT[0]), {}, r"expected images x \(B, C, H, W\) and weight"),
    ((X, WEIGHT[:, :3]), {}, r"expected weight \(O, 4, P, Q\) for 4 channels in 1 groups, got \(6, 3, 3, 3\)"),
    ((X, WEIGHT[:, :2]), {"groups": 1}, r"expected weight \(O, 4, P, Q\) for 4 channels"),
    ((X, WEIGHT), {"groups": 3}, "expected groups that divide the 4 channels and 6 filters, got 3"),
    ((X, WEIGHT[:, :1]), {"groups": 4}, "expected groups that divide the 4 channels and 6 filters, got 4"),
    ((X, WEIGHT), {"groups": 0}, "expected groups that divide .* got 0"),
    ((X, WEIGHT, np.ones(5)), {}, r"expected bias \(6,\), got \(5,\)"),
    ((X[:, :, :2], WEIGHT), {}, "expected a kernel that fits the padded images 2×5, got 3×3"),
    ((X, WEIGHT), {"stride": 0}, r"expected stride as an int of at least 1 or \(height, width\), got 0"),
    ((X, WEIGHT), {"stride": 1.5}, r"expected stride as an int of at least 1 or \(height, width\), got 1.5"),
    ((X, WEIGHT), {"padding": -1}, r"expected padding as an int of at least 0 or \(height, width\), got -1"),
    ((X, WEIGHT), {"padding": (1, 2, 3)}, "expected padding as an int of at least 0"),
]  # fmt: skip


@pytest.mark.parametrize("arrays, options, message", REFUSED)
def test_what_does_not_fit_is_refused_in_words(arrays, options, message):
    for conv2d in (F.conv2d, F.conv2d.reference):
        with pytest.raises(ValueError, match=f"conv2d: {message}"):
            conv2d(*arrays, **options)


def test_an_empty_batch_has_an_empty_result_and_zero_gradients():
    y, cache = F.conv2d(X[:0], WEIGHT, WEIGHT[:, 0, 0, 0], padding=1)
    assert y.shape == (0, 6, 5, 5)
    dx, dweight, dbias = F.conv2d_backward(y, cache)
    assert dx.shape == (0, 4, 5, 5) and not dweight.any() and not dbias.any()


def test_a_gradient_of_another_shape_is_refused():
    _, cache = F.conv2d(X, WEIGHT)
    with pytest.raises(ValueError, match=r"conv2d_backward: expected dy \(2, 6, 3, 3\), the shape of the result, got"):
        F.conv2d_backward(np.ones((2, 6, 5, 5)), cache)


def test_the_bias_of_very_many_pixels_keeps_its_digits():
    dy = np.random.default_rng(0).standard_normal((64, 4, 32, 32)).astype("float32")
    _, cache = F.conv2d(dy, np.ones((4, 4, 1, 1), "float32"), np.ones(4, "float32"))
    exact = dy.sum((0, 2, 3), dtype="float64")
    np.testing.assert_allclose(F.conv2d_backward(dy, cache)[2], exact, rtol=0, atol=2e-4)
