from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import seeds

from tinyvit import functional as F
from tinyvit.kernels.fast import winograd


def drawn_arrays(seed, *shapes):
    generator = np.random.default_rng(seed)
    return [generator.standard_normal(shape).astype("float32") for shape in shapes]


@given(
    batch=st.integers(1, 9), channels=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    more=st.tuples(st.integers(0, 6), st.integers(0, 6)), padding=st.tuples(st.integers(0, 3), st.integers(0, 3)),
    images=st.integers(1, 4), tiles=st.sampled_from([1, 9, 512]), seed=seeds(),
)  # fmt: skip
def test_images_and_batches_of_any_size_in_any_pieces(batch, channels, more, padding, images, tiles, seed):
    filters, C = channels
    sides = [max(1, 3 - 2 * p) + by for p, by in zip(padding, more)]
    x, weight = drawn_arrays(seed, (batch, C, *sides), (filters, C, 3, 3))
    exact, cache = F.conv2d.reference(x.astype("float64"), weight.astype("float64"), None, 1, padding)
    (dy,) = drawn_arrays(seed + 1, exact.shape)
    gradients = F.conv2d_backward.reference(dy.astype("float64"), cache)
    with mock.patch.multiple(winograd, MIN_CHANNELS=1, IMAGES=images, TILES=tiles):
        assert winograd.fits(x, weight, cache.windows, 1) == (images <= batch)
        y, cache = F.conv2d(x, weight, None, 1, padding)
        dx, dweight = F.conv2d_backward(dy, cache)
    np.testing.assert_allclose(y, exact, rtol=1.3e-6, atol=1e-5)
    for got, gradient in zip((dx, dweight), gradients, strict=True):
        np.testing.assert_allclose(got, gradient, rtol=2e-3, atol=1e-5 * abs(gradient).max())


@pytest.mark.parametrize("C, filters, side", [(32, 32, 32), (64, 64, 16), (256, 256, 3), (33, 40, 7)])
def test_layers_as_they_are_taken_are_as_exact_as_columns(C, filters, side):
    x, weight = drawn_arrays(0, (40, C, side, side), (filters, C, 3, 3))
    exact, cache = F.conv2d.reference(x.astype("float64"), weight.astype("float64"), None, 1, 1)
    (dy,) = drawn_arrays(1, exact.shape)
    gradients = F.conv2d_backward.reference(dy.astype("float64"), cache)
    assert winograd.fits(x, weight, cache.windows, 1)
    errors = []
    for least in (winograd.MIN_CHANNELS, C + filters):
        with mock.patch.object(winograd, "MIN_CHANNELS", least):
            y, cache = F.conv2d(x, weight, None, 1, 1)
            results = y, *F.conv2d_backward(dy, cache)
        errors.append([abs(a - b).max() for a, b in zip(results, (exact, *gradients), strict=True)])
    assert errors[0] != errors[1] and all(a < 4 * b for a, b in zip(*errors))


@pytest.mark.parametrize(
    "shape, options",
    [
        ((64, 64, 1, 1), {}),
        ((64, 64, 5, 5), {}),
        ((64, 64, 3, 3), {"stride": 2}),
        ((64, 32, 3, 3), {"groups": 2}),
        ((8, 64, 3, 3), {}),
    ],
)
def test_other_convolutions_are_left_to_columns(shape, options):
    x, weight = drawn_arrays(0, (16, 64, 6, 6), shape)
    _, cache = F.conv2d(x, weight, None, padding=1, **options)
    assert not winograd.fits(x, weight, cache.windows, cache.groups)


def test_zeros_and_padding_give_zeros():
    x = np.zeros((16, 32, 5, 5), "float32")
    x[:, :, 2, 2] = 1
    (weight,) = drawn_arrays(0, (32, 32, 3, 3))
    y, _ = F.conv2d(x, weight, None, 1, 1)
    inner = y[:, :, 1:4, 1:4]
    np.testing.assert_allclose(inner, np.broadcast_to(weight.sum(1)[..., ::-1, ::-1], inner.shape), atol=2e-5)
    inner[...] = 0
    assert abs(y).max() < 1e-5
