import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from strategies import normals, seeds, tokens

from tinyvit import functional as F


@given(x=tokens(dtype="float32"), out=st.integers(1, 5), biased=st.booleans(), seed=seeds())
def test_the_forward_is_bit_for_bit_the_reference(x, out, biased, seed):
    generator = np.random.default_rng(seed)
    arguments = [generator.standard_normal(shape).astype("float32") for shape in ((out, x.shape[-1]), (out,))]
    y, cache = F.linear(x, *arguments[: 1 + biased])
    expected, expected_cache = F.linear.reference(x, *arguments[: 1 + biased])
    np.testing.assert_array_equal(y, expected)
    assert y.dtype == "float32" and cache.has_bias == expected_cache.has_bias == biased


@given(normals((3, 4), (2, 4), (2,), dtype="float32"))
def test_operands_of_other_dtypes_are_left_to_the_reference(arrays):
    x, weight, bias = arrays
    for arguments in ((x, weight.astype("float64"), bias), (x, weight, bias.astype("float64"))):
        np.testing.assert_array_equal(F.linear(*arguments)[0], F.linear.reference(*arguments)[0])


@given(x=tokens(dtype="float32"), out=st.integers(1, 5), seed=seeds())
def test_gradients_are_those_of_the_reference_and_are_added_into_the_given_arrays(x, out, seed):
    generator = np.random.default_rng(seed)
    weight, bias = generator.standard_normal((out, x.shape[-1]), "float32"), generator.standard_normal(out, "float32")
    dy = generator.standard_normal((*x.shape[:-1], out), "float32")
    _, cache = F.linear(x, weight, bias)
    dx, dweight, dbias = F.linear_backward(dy, cache)
    for got, want in zip((dx, dweight, dbias), F.linear_backward.reference(dy, cache), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    totals = np.ones_like(weight), np.ones_like(bias)
    assert F.linear_backward(dy, cache, into=totals)[1:] == totals
    np.testing.assert_allclose(totals[0], 1 + dweight, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(totals[1], 1 + dbias, rtol=1e-6, atol=1e-6)
    assert F.linear_backward(dy, cache, into=(False, False))[1:] == (None, None)
    for got, want in zip(F.linear_backward(dy, cache, inputs=False)[1:], (dweight, dbias), strict=True):
        np.testing.assert_array_equal(got, want)


def test_the_bias_of_very_many_rows_keeps_its_digits():
    dy = np.random.default_rng(0).standard_normal((1 << 17, 4)).astype("float32")
    _, cache = F.linear(np.ones((1 << 17, 1), "float32"), np.ones((4, 1), "float32"), np.ones(4, "float32"))
    np.testing.assert_allclose(F.linear_backward(dy, cache)[2], dy.sum(0, dtype="float64"), rtol=0, atol=2e-4)
