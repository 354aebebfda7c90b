import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numbers_of import DTYPE, EPSILON, numbers, to

from tinyvit import functional as F
from tinyvit.functional.softmax import SoftmaxCache
from tinyvit.kernels.cuda.softmax import softmax_backward_rows, softmax_rows

ROWS = st.lists(st.integers(0, 5), max_size=2).map(tuple)
WIDTHS = st.integers(1, 40) | st.sampled_from([64, 65, 72, 128, 197, 256, 300, 512, 1000, 1024, 1025, 1032, 2056])


@pytest.mark.parametrize("dtype", EPSILON)
@given(rows=ROWS, N=WIDTHS, seed=st.integers(0, 99), scale=st.sampled_from([1.0, 10.0]))
def test_softmax_and_its_backward_are_those_of_the_reference(cupy, dtype, rows, N, seed, scale):
    x, dy = numbers(2, *rows, N, dtype=dtype, seed=seed, scale=scale)
    probs, cache = F.softmax(to(cupy, x, dtype))
    dx = F.softmax_backward(to(cupy, dy, dtype), cache)
    assert probs.dtype == dx.dtype == dtype and type(cache) is SoftmaxCache
    eps = EPSILON[dtype] + 1e-6
    tiny = 2.0**-25 if dtype == "float16" else 1e-30  # half the smallest number above zero
    np.testing.assert_allclose(probs.get().astype("float64"), F.softmax.reference(x)[0], rtol=2 * eps, atol=tiny)
    # From the same probabilities, so that only the backward is compared.
    wanted = F.softmax_backward.reference(dy, SoftmaxCache(probs.get().astype("float64")))
    np.testing.assert_allclose(dx.get().astype("float64"), wanted, rtol=eps, atol=tiny + 1e-6 * scale)


@pytest.mark.parametrize("dtype", EPSILON)
@given(
    rows=ROWS, N=WIDTHS, seed=st.integers(0, 99), gap=st.integers(0, 9), scale=st.sampled_from([1.0, 0.125, 3.0, -1.0])
)
def test_strided_rows_are_replaced_and_the_gaps_between_them_stay_unchanged(cupy, dtype, rows, N, seed, gap, scale):
    x, dprobs = numbers(2, *rows, N + gap, dtype=dtype, seed=seed)
    place, gradient = to(cupy, x, dtype), to(cupy, dprobs, dtype)
    expected, _ = F.softmax.reference(scale * x[..., :N])
    probs = softmax_rows(place[..., :N], place[..., :N], scale)
    eps = EPSILON[dtype] + 1e-6
    np.testing.assert_allclose(probs.get().astype("float64"), expected, rtol=2 * eps, atol=1e-7)
    np.testing.assert_array_equal(place.get()[..., N:].astype("float64"), x[..., N:])
    wanted = scale * F.softmax_backward.reference(dprobs[..., :N], SoftmaxCache(probs.get().astype("float64")))
    dx = softmax_backward_rows(gradient[..., :N], probs, gradient[..., :N], scale)
    np.testing.assert_allclose(dx.get().astype("float64"), wanted, rtol=eps, atol=4e-6)
    np.testing.assert_array_equal(gradient.get()[..., N:].astype("float64"), dprobs[..., N:])


@pytest.mark.parametrize("dtype", EPSILON)
@given(rows=ROWS, N=WIDTHS, seed=st.integers(0, 99))
def test_the_padding_of_rows_is_ignored_and_filled_with_zeros(cupy, dtype, rows, N, seed):
    pack = 16 // DTYPE[dtype].itemsize
    x, dprobs = numbers(2, *rows, -(-N // pack) * pack, dtype=dtype, seed=seed)
    x[..., N:] = dprobs[..., N:] = np.nan
    place, gradient = to(cupy, x, dtype), to(cupy, dprobs, dtype)
    softmax_rows(place[..., :N], place[..., :N], 0.5, padded=True)
    eps = EPSILON[dtype] + 1e-6
    probs = place.get().astype("float64")
    expected, _ = F.softmax.reference(0.5 * x[..., :N])
    np.testing.assert_allclose(probs[..., :N], expected, rtol=2 * eps, atol=1e-7)
    softmax_backward_rows(gradient[..., :N], place[..., :N], gradient[..., :N], 0.5, padded=True)
    wanted = 0.5 * F.softmax_backward.reference(dprobs[..., :N], SoftmaxCache(probs[..., :N]))
    dx = gradient.get().astype("float64")
    np.testing.assert_allclose(dx[..., :N], wanted, rtol=eps, atol=2e-6)
    assert not probs[..., N:].any() and not dx[..., N:].any()


@pytest.mark.parametrize("dtype", EPSILON)
@given(N=WIDTHS, seed=st.integers(0, 99))
def test_masked_and_large_scores_give_probabilities(cupy, dtype, N, seed):
    generator = np.random.default_rng(seed)
    x = generator.choice([1e4, -1e4, -np.inf, 0.0, 9984.0], (4, N)).astype(DTYPE[dtype]).astype("float64")
    x[:, generator.integers(N)] = 1.0
    probs, cache = F.softmax(to(cupy, x, dtype))
    expected, _ = F.softmax.reference(x)
    np.testing.assert_allclose(probs.get().astype("float64"), expected, rtol=EPSILON[dtype] + 1e-6, atol=1e-7)
    dx = F.softmax_backward(to(cupy, np.ones((4, N)), dtype), cache).get().astype("float64")
    assert abs(dx).max() <= 2 * EPSILON[dtype] * N**0.5 + 1e-6


def test_nan_makes_its_row_nan_and_no_other(cupy):
    x = numbers(3, 70)
    x[1, 5] = np.nan
    assert (np.isnan(F.softmax(to(cupy, x))[0].get()).all(1) == [False, True, False]).all()
    assert np.isnan(F.softmax(to(cupy, np.full((1, 70), -np.inf)))[0].get()).all()


def test_layouts_without_evenly_spaced_rows_are_refused(cupy):
    x = to(cupy, numbers(4, 3, 8))
    with pytest.raises(ValueError, match="softmax: expected rows that start equally far apart"):
        softmax_rows(x[:, :2], x[:, :2])
    with pytest.raises(ValueError, match="softmax: expected rows whose numbers follow each other"):
        softmax_rows(x.transpose(0, 2, 1), x.transpose(0, 2, 1))
    with pytest.raises(ValueError, match="padded rows must start on boundaries of 16 bytes"):
        softmax_rows(x[..., :7].copy(), x[..., :7].copy(), padded=True)


def test_arrays_in_any_memory_order_are_read_correctly(cupy):
    x, dy = numbers(2, 6, 4, 16)
    probs, cache = F.softmax(to(cupy, x).transpose(1, 2, 0))
    np.testing.assert_allclose(probs.get(), F.softmax.reference(x.transpose(1, 2, 0))[0], rtol=1e-5, atol=1e-7)
    dx = F.softmax_backward(to(cupy, dy).transpose(1, 2, 0), cache)
    wanted = F.softmax_backward.reference(dy.transpose(1, 2, 0), SoftmaxCache(probs.get().astype("float64")))
    np.testing.assert_allclose(dx.get(), wanted, rtol=1e-5, atol=1e-6)


def test_gradients_of_another_dtype_are_those_of_the_reference_or_refused(cupy):
    x = numbers(3, 5)
    _, cache = F.softmax(to(cupy, x))
    assert F.softmax_backward(cupy.asarray(x), cache).dtype == "float64"
    with pytest.raises(ValueError, match="softmax_backward: no kernel for .*bfloat16.* together .*; compute"):
        F.softmax_backward(to(cupy, x, "bfloat16"), cache)


@pytest.mark.parametrize("N", [65, 300, 1100])
def test_the_order_of_the_threads_changes_no_bit(cupy, any_order, N):
    x = to(cupy, numbers(20, N))
    softmax_backward_rows(x, softmax_rows(x, x), x)
