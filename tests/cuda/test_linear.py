import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numbers_of import DTYPE, EPSILON, numbers, to

from tinyvit import functional as F

SHAPES = st.lists(st.integers(0, 5), max_size=2).map(tuple)
WIDTHS = st.one_of(st.integers(1, 9), st.sampled_from((16, 32, 264)))


def close(got, expected, dtype):
    """DESIGN.md's bounds, of the largest number."""
    got = got.get().astype("float64")
    assert got.shape == expected.shape
    bound = {"float32": 1e-5, "float16": 2e-3, "bfloat16": 1.6e-2}[dtype]
    np.testing.assert_allclose(got, expected, rtol=0, atol=bound * abs(expected).max(initial=1e-3))


def case(dtype, rows, width, out, seed):
    x, weight, bias = numbers(*rows, width, dtype=dtype, seed=seed), *(
        numbers(*shape, dtype=kind, seed=seed + i)
        for i, (shape, kind) in enumerate((((out, width), dtype), ((out,), "float32")), 1)
    )
    return x, weight, bias, numbers(*rows, out, dtype=dtype, seed=seed + 3)


@pytest.mark.parametrize("dtype", EPSILON)
@given(rows=SHAPES, width=WIDTHS, out=WIDTHS, biased=st.booleans(), seed=st.integers(0, 99))
def test_linear_and_its_backward_are_those_of_the_reference(cupy, dtype, rows, width, out, biased, seed):
    x, weight, bias, dy = case(dtype, rows, width, out, seed)
    parameters = (weight, bias)[: 1 + biased]
    y, cache = F.linear(to(cupy, x, dtype), to(cupy, weight, dtype), *([to(cupy, bias)] if biased else []))
    gradients = F.linear_backward(to(cupy, dy, dtype), cache)
    expected, c = F.linear.reference(x, *parameters)
    wanted = F.linear_backward.reference(dy, c)
    assert [str(array.dtype) for array in (y, *gradients)] == [dtype, dtype, *["float32"] * len(parameters)]
    close(y, expected, dtype)
    close(gradients[0], wanted[0], dtype)
    for got, want in zip(gradients[1:], wanted[1:], strict=True):
        close(got, want, "float32")


@pytest.mark.parametrize("dtype", EPSILON)
@given(rows=SHAPES, width=WIDTHS, out=WIDTHS, seed=st.integers(0, 99))
def test_gradients_of_parameters_are_added_into_the_given_arrays_or_left_out(cupy, dtype, rows, width, out, seed):
    x, weight, bias, dy = case(dtype, rows, width, out, seed)
    _, cache = F.linear(to(cupy, x, dtype), to(cupy, weight, dtype), to(cupy, bias))
    _, dweight, dbias = F.linear_backward.reference(dy, F.linear.reference(x, weight, bias)[1])
    buffer = cupy.asarray(np.ones(out * width + out, "float32"))
    into = buffer[: out * width].reshape(out, width), buffer[out * width :]
    dx, *totals = F.linear_backward(to(cupy, dy, dtype), cache, into=into)
    assert totals[0] is into[0] and totals[1] is into[1]
    close(into[0], 1 + dweight, "float32")
    close(into[1], 1 + dbias, "float32")
    assert F.linear_backward(to(cupy, dy, dtype), cache, into=(False, False))[1:] == (None, None)
    assert F.linear_backward(to(cupy, dy, dtype), cache, into=(None, False))[2] is None
    _, *alone = F.linear_backward(to(cupy, dy, dtype), cache)
    unwanted, *same = F.linear_backward(to(cupy, dy, dtype), cache, inputs=False)
    assert unwanted is None
    for got, gradient in zip(same, alone, strict=True):
        np.testing.assert_array_equal(got.get(), gradient.get())
    assert dx.dtype == DTYPE[dtype]


@pytest.mark.parametrize("dtype", EPSILON)
def test_operands_may_have_any_memory_layout(cupy, dtype):
    x, weight, bias, dy = case(dtype, (4, 6), 5, 8, seed=1)
    expected, c = F.linear.reference(x, weight, bias)
    wanted = F.linear_backward.reference(dy, c)

    def padded(array):
        return to(cupy, np.repeat(array, 2, axis=-1), dtype)[..., ::2]

    def turned(array):
        return to(cupy, np.ascontiguousarray(array.T), dtype).T

    for lie in (padded, turned):
        y, cache = F.linear(lie(x), lie(weight), to(cupy, np.repeat(bias, 2))[::2])
        dx, dweight, dbias = F.linear_backward(lie(dy), cache)
        for got, want, kind in zip((y, dx, dweight, dbias), (expected, *wanted), (dtype, dtype, *["float32"] * 2)):
            close(got, want, kind)


def test_float32_mixed_with_other_dtypes_is_left_to_the_reference(cupy):
    x, weight, _, dy = case("float32", (3,), 4, 2, seed=0)
    y, cache = F.linear(to(cupy, x), cupy.asarray(weight))
    assert y.dtype == "float64" and cache.weight.dtype == "float64"
    dx, dweight = F.linear_backward(to(cupy, dy), cache, into=(False,))
    np.testing.assert_allclose(dx.get(), dy @ weight, rtol=1e-6)
    assert dweight is None


@pytest.mark.parametrize("dtype", ("bfloat16", "float16"))
def test_low_precision_mixed_with_other_dtypes_is_refused(cupy, dtype):
    x, weight, bias, dy = case(dtype, (3,), 4, 2, seed=0)
    x, weight, bias, dy = to(cupy, x, dtype), to(cupy, weight, dtype), to(cupy, bias), to(cupy, dy)
    with pytest.raises(ValueError, match=f"expected a weight in {dtype}, like x, .* got float32"):
        F.linear(x, weight.astype("float32"))
    with pytest.raises(ValueError, match=f"a bias in float32, got {dtype} and {dtype}"):
        F.linear(x, weight, bias.astype(DTYPE[dtype]))
    with pytest.raises(ValueError, match=f"linear_backward: expected dy in float32, like x, got {dtype}"):
        F.linear_backward(dy.astype(DTYPE[dtype]), F.linear(x.astype("float32"), weight.astype("float32"))[1])


def test_shapes_that_do_not_fit_are_refused_as_by_the_reference(cupy):
    x, weight = to(cupy, numbers(3, 4)), to(cupy, numbers(2, 4))
    with pytest.raises(ValueError, match=r"expected x \(..., in\) and weight \(out, in\), got \(3, 4\) and \(4, 2\)"):
        F.linear(x, weight.T)
    with pytest.raises(ValueError, match=r"expected bias \(2,\), got \(4,\)"):
        F.linear(x, weight, x[0])
    _, cache = F.linear(x, weight)
    with pytest.raises(ValueError, match=r"into=: expected an array \(2, 4\) to add to, got \(4, 2\)"):
        F.linear_backward(x[:, :2], cache, into=(to(cupy, numbers(4, 2)),))
    with pytest.raises(ValueError, match="into= has 2 entries for 1 parameter gradients"):
        F.linear_backward(x[:, :2], cache, into=(None, None))


@pytest.mark.parametrize("dtype", EPSILON)
def test_linear_has_the_same_bits_in_any_order_of_the_threads(cupy, any_order, dtype):
    x, weight, bias, dy = case(dtype, (70,), 5, 24, seed=1)
    _, cache = F.linear(to(cupy, x, dtype), to(cupy, weight, dtype), to(cupy, bias))
    F.linear_backward(to(cupy, dy, dtype), cache)
