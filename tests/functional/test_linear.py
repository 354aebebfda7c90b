import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import normals, seeds, tokens

from tinyvit import functional as F
from tinyvit import gradcheck, kernels


@given(x=tokens(), out=st.integers(1, 6), biased=st.booleans(), seed=seeds())
def test_linear_gradients_match_the_complex_step(x, out, biased, seed):
    generator = np.random.default_rng(seed)
    arguments = generator.standard_normal((out, x.shape[-1])), generator.standard_normal(out)
    report = gradcheck.check(F.linear, F.linear_backward, (x, *arguments[: 1 + biased]))
    assert report.max_error < 1e-10, report


@given(normals((2, 3, 5), (4, 5), (4,), dtype="float64"))
def test_linear_maps_every_row_independently(arrays):
    x, weight, bias = arrays
    y, _ = F.linear(x, weight, bias)
    np.testing.assert_allclose(y[1, 2], weight @ x[1, 2] + bias, atol=1e-13)


def test_linear_takes_any_number_of_leading_axes():
    weight = np.ones((3, 2))
    for shape in [(2,), (5, 2), (4, 5, 2), (1, 4, 5, 2)]:
        y, cache = F.linear(np.ones(shape), weight)
        assert y.shape == (*shape[:-1], 3)
        assert F.linear_backward(y, cache)[0].shape == shape


@pytest.mark.parametrize("weight, bias", [((4, 6), (4,)), ((5,), (4,)), ((4, 5), (5,)), ((4, 5), (1,))])
def test_linear_names_the_shapes_that_do_not_fit(weight, bias):
    with pytest.raises(ValueError, match="linear: expected .* got"):
        F.linear(np.ones((2, 5)), np.ones(weight), np.ones(bias))


def test_a_kernel_makes_no_product_for_a_gradient_that_is_not_wanted():
    class Counting(np.ndarray):
        products = 0

        def __array_ufunc__(self, ufunc, method, *inputs, **kwargs):
            Counting.products += ufunc is np.matmul
            plain = [np.asarray(x) if isinstance(x, Counting) else x for x in inputs]
            return getattr(ufunc, method)(*plain, **kwargs)

    _, cache = F.linear(np.ones((2, 5)), np.ones((4, 5)), np.ones(4))
    dy = np.ones((2, 4)).view(Counting)
    for into, inputs, products in [
        (None, True, 2), ((False, None), True, 1), ((False, False), True, 1), (None, False, 1),
        ((False, None), False, 0),
    ]:  # fmt: skip
        Counting.products = 0
        with kernels.using("numpy"):
            F.linear_backward(dy, cache, into=into, inputs=inputs)
        assert Counting.products == products
