import tracemalloc
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import seeds

import tinyvit
from tinyvit import functional as F
from tinyvit.kernels import conv


@st.composite
def convolutions(draw):
    """x, weight and options, with images of one pixel or of many pieces, and windows that see padding alone."""
    groups, each, filters = (draw(st.integers(1, 3)) for _ in range(3))
    kernel, stride, padding = (draw(st.tuples(st.integers(low, 3), st.integers(low, 4))) for low in (1, 1, 0))
    image = [max(1, k - 2 * p) + draw(st.integers(0, 6)) for k, p in zip(kernel, padding)]
    shapes = (draw(st.integers(1, 5)), groups * each, *image), (groups * filters, each, *kernel), (groups * filters,)
    generator = np.random.default_rng(draw(seeds()))
    arrays = [generator.standard_normal(shape).astype("float32") for shape in shapes]
    return arrays[: draw(st.integers(2, 3))], {"stride": stride, "padding": padding, "groups": groups}


@given(drawn=convolutions(), columns=st.sampled_from([1, 3, 8, 1024]), seed=seeds())
def test_pieces_of_any_size_give_what_the_reference_does(drawn, columns, seed):
    arrays, options = drawn
    with tinyvit.reference():
        expected, cache = F.conv2d(*arrays, **options)
        dy = np.random.default_rng(seed).standard_normal(expected.shape).astype("float32")
        gradients = F.conv2d_backward(dy, cache)
    with mock.patch.object(conv, "COLUMNS", columns):
        y, cache = F.conv2d(*arrays, **options)
        got = F.conv2d_backward(dy, cache)
        only_dx = F.conv2d_backward(dy, cache, into=(False,) * (len(arrays) - 1))[0]
        nothing, *without_dx = F.conv2d_backward(dy, cache, inputs=False)
    assert nothing is None
    for a, b in zip(without_dx, got[1:], strict=True):
        np.testing.assert_array_equal(a, b)
    for a, b in zip((y, *got, only_dx), (expected, *gradients, gradients[0]), strict=True):
        assert a.dtype == "float32"
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_a_large_image_is_cut_into_rows_and_a_batch_into_a_few_images():
    generator = np.random.default_rng(0)
    for shape in ((1, 3, 90, 70), (40, 3, 9, 9)):
        x, weight = (generator.standard_normal(s).astype("float32") for s in (shape, (4, 3, 5, 3)))
        y, cache = F.conv2d(x, weight, None, 1, (2, 1))
        gradients = F.conv2d_backward(np.ones_like(y), cache)
        exact, cache = F.conv2d.reference(x.astype("float64"), weight.astype("float64"), None, 1, (2, 1))
        np.testing.assert_allclose(y, exact, rtol=1.3e-6, atol=1e-5)
        for a, b in zip(gradients, F.conv2d_backward.reference(np.ones_like(exact), cache)):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5 * abs(b).max())


@pytest.mark.parametrize("level", ["numpy", "fast"])
@pytest.mark.parametrize("options", [
    {"padding": 1}, {"padding": 1, "stride": 2}, {"padding": 2}, {"padding": 1, "groups": 2},
])  # fmt: skip
def test_the_gradient_of_images_is_never_in_memory_where_it_is_not_wanted(level, options):
    images = np.ones((8, 4, 64, 64), "float32")
    with tinyvit.kernels.using(level):
        y, cache = F.conv2d(images, np.ones((8, 4 // options.get("groups", 1), 3, 3), "float32"), **options)
        took = []
        for inputs in (True, False):
            F.conv2d_backward(y[:1], cache._replace(x=images[:1]))  # what is compiled is compiled here
            tracemalloc.start()
            F.conv2d_backward(y, cache, inputs=inputs)
            took.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
    assert took[0] - took[1] > 0.9 * images.nbytes


@pytest.mark.parametrize("stride", [1, 2])
def test_the_columns_of_the_whole_batch_are_never_in_memory(stride):
    x, weight = np.ones((64, 16, 32, 32), "float32"), np.ones((16, 16, 3, 3), "float32")
    y, cache = F.conv2d(x, weight, None, stride, 1)
    F.conv2d_backward(y[:1], cache._replace(x=x[:1]))  # what is compiled is compiled here
    tracemalloc.start()
    F.conv2d_backward(y, cache)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < x.nbytes + (3 << 20)  # dx, and the columns of a piece twice; of the batch they are nine times x
