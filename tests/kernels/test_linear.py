import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from strategies import normals, seeds, tokens

from tinyvit import functional as F


@given(x=tokens(dtype="float32"), out=st.integers(1, 5), biased=st.booleans(), seed=seeds())
def test_the_forward_is_bit_for_bit_its_plain_text(x, out, biased, seed):
    generator = np.random.default_rng(seed)
    arguments = [generator.standard_normal(shape).astype("float32") for shape in ((out, x.shape[-1]), (out,))]
    y, cache = F.linear(x, *arguments[: 1 + biased])
    expected, expected_cache = F.linear.reference(x, *arguments[: 1 + biased])
    np.testing.assert_array_equal(y, expected)
    assert y.dtype == "float32" and cache.has_bias == expected_cache.has_bias == biased


@given(normals((3, 4), (2, 4), (2,), dtype="float32"))
def test_operands_of_other_dtypes_are_left_to_the_plain_text(arrays):
    x, weight, bias = arrays
    for arguments in ((x, weight.astype("float64"), bias), (x, weight, bias.astype("float64"))):
        np.testing.assert_array_equal(F.linear(*arguments)[0], F.linear.reference(*arguments)[0])
