import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numbers_of import EPSILON, numbers, sizes_of_sums, to
from strategies import every_shape_that_broadcasts

from tinyvit import functional as F
from tinyvit.kernels.cuda import fused_attention
from tinyvit.kernels.cuda.attention import supported
from tinyvit.kernels.cuda.fused_attention import NARROW

# Relative to the largest number: sums of up to a few hundred products, each rounded once.
BOUNDS = {"float32": 1e-5, "bfloat16": 1.6e-2, "float16": 2e-3}


def checked(cupy, q, k, v, dy, dtype, scale, bias=None):
    """Compare forward and backward on the device with the reference implementation in float64."""
    on_device = None if bias is None else to(cupy, bias)
    y, cache = fused_attention.forward(*(to(cupy, x, dtype) for x in (q, k, v)), on_device, scale)
    got = y, *fused_attention.backward(to(cupy, dy, dtype), cache)
    expected, c = F.attention.reference(q, k, v, bias, scale)
    wanted, sizes = (expected, *F.attention_backward.reference(dy, c)), [*sizes_of_sums(q, k, v, dy, c.probs, scale), 1]
    for i, (a, b, size) in enumerate(zip(got, wanted, sizes[: len(wanted)], strict=True)):
        assert a.dtype == (dtype if i < 4 else "float32")
        bound = BOUNDS[dtype] * max(size, abs(b).max(initial=0))
        np.testing.assert_allclose(a.get().astype("float64"), b, rtol=0, atol=bound)
    # A score of up to 16 has a rounding error of up to 16 ε, which is the relative error of its exponential.
    np.testing.assert_allclose(cache.probs.get(), c.probs, atol=16 * EPSILON["float32"])
    return got


@pytest.mark.parametrize("dtype", EPSILON)
@pytest.mark.parametrize("width", NARROW)
@given(
    B=st.integers(1, 3), H=st.integers(1, 5), N=st.integers(1, 70), Nk=st.integers(1, 70), seed=st.integers(0, 99),
    scale=st.sampled_from([0.25, 1.0, -0.5]),
)  # fmt: skip
def test_heads_and_all_gradients_are_those_of_the_reference(cupy, dtype, width, B, H, N, Nk, seed, scale):
    q, dy = numbers(2, B, H, N, width, dtype=dtype, seed=seed)
    k, v = numbers(2, B, H, Nk, width, dtype=dtype, seed=seed + 1)
    checked(cupy, q, k, v, dy, dtype, scale)


@pytest.mark.parametrize("dtype", EPSILON)
@pytest.mark.parametrize("width", NARROW)
def test_a_bias_of_every_shape_that_broadcasts_is_added_and_gets_its_gradient(cupy, dtype, width):
    q, dy = numbers(2, 2, 3, 5, width, dtype=dtype)
    k, v = numbers(2, 2, 3, 4, width, dtype=dtype, seed=1)
    for shape in every_shape_that_broadcasts(2, 3, 5, 4):
        checked(cupy, q, k, v, dy, dtype, 0.25, numbers(*shape, seed=2))


def test_masked_keys_are_ignored_and_a_fully_masked_query_gives_zeros(cupy):
    q, k, v, dy = numbers(4, 2, 3, 40, 16)
    mask = np.where(np.tri(40), 0.0, -np.inf)
    mask[7] = -np.inf
    y, dq, *_, dmask = checked(cupy, q, k, v, dy, "float32", 0.25, mask)
    assert not y[:, :, 7].any() and not dq[:, :, 7].any() and not dmask[7].any()


@pytest.mark.parametrize("width", NARROW)
def test_a_product_that_only_the_scale_makes_finite_does_no_harm(cupy, width):
    q = np.zeros((1, 1, 2, width))
    q[..., 0] = 2e19  # q kᵀ is 4e38, beyond float32; q kᵀ · scale is not
    _, cache = fused_attention.forward(*[to(cupy, q)] * 2, to(cupy, numbers(1, 1, 2, width)), None, width**-0.5)
    np.testing.assert_array_equal(cache.inverse.get(), 0.5)
    assert all(np.isfinite(x.get()).all() for x in fused_attention.backward(to(cupy, numbers(1, 1, 2, width)), cache))


@pytest.mark.parametrize("width", NARROW)
def test_more_rows_than_a_block_has_threads_are_split_over_blocks(cupy, width):
    q, k, v, dy = numbers(4, 1, 2, 300, width, seed=3)
    checked(cupy, q, k, v, dy, "float32", 0.25)


def test_the_backward_gets_the_heads_in_float32_and_not_a_copy_where_they_are(cupy):
    q, k, v = numbers(3, 1, 2, 5, 16, seed=4)
    y, cache = fused_attention.forward(*(to(cupy, x) for x in (q, k, v)), None, 0.25)
    assert cache.y is y
    y, cache = fused_attention.forward(*(to(cupy, x, "bfloat16") for x in (q, k, v)), None, 0.25)
    assert cache.y.dtype == "float32"
    np.testing.assert_array_equal(cache.y.astype(y.dtype).get(), y.get())


@pytest.mark.parametrize("N, Nk", [(1, 3), (3, 1), (1, 1)])
def test_more_heads_than_fit_into_a_block_are_split_over_blocks(cupy, N, Nk):
    q, dy = numbers(2, 1, 200, N, 32, seed=4)
    k, v = numbers(2, 1, 200, Nk, 32, seed=5)
    checked(cupy, q, k, v, dy, "float32", 0.25)


@pytest.mark.parametrize("width", NARROW)
@pytest.mark.parametrize("bias", [None, (3, 40, 40), (1, 40), (1,)])
def test_no_order_of_the_threads_changes_a_bit(cupy, any_order, width, bias):
    q, k, v, dy = numbers(4, 1, 3, 40, width, seed=1)
    checked(cupy, q, k, v, dy, "float32", 0.25, bias and numbers(*bias))


@pytest.mark.parametrize("size", [1000, -1000])
def test_scores_far_from_zero_do_no_harm(cupy, size):
    q, k, v, dy = numbers(4, 1, 1, 20, 16, seed=2)
    # Whole numbers, so that scores of thousands are exact.
    checked(cupy, size + np.round(q), 1 + np.round(k), v, dy, "float32", 1.0)


def test_queries_keys_and_values_are_read_where_the_layer_wrote_them(cupy):
    qkv = numbers(2, 9, 3, 4, 16, seed=5)
    on_device = to(cupy, qkv).transpose(2, 0, 3, 1, 4)
    q, k, v = on_device
    assert fused_attention.fits(q, k, v)
    y, cache = fused_attention.forward(q, k, v, None, 0.25)
    expected, c = F.attention.reference(*qkv.transpose(2, 0, 3, 1, 4))
    np.testing.assert_allclose(y.get(), expected, atol=1e-5)
    assert y.transpose(0, 2, 1, 3).flags.c_contiguous  # and the heads lie as the next layer reads them
    dy = numbers(2, 9, 4, 16, seed=6)
    dq, dk, dv = fused_attention.backward(to(cupy, dy).transpose(0, 2, 1, 3), cache)
    assert dq.base is dk.base is dv.base
    for a, b in zip((dq, dk, dv), F.attention_backward.reference(dy.transpose(0, 2, 1, 3), c)):
        np.testing.assert_allclose(a.get(), b, atol=1e-5)


@pytest.mark.parametrize("shape", [(2, 3, 5, 8), (2, 3, 5, 64), (0, 3, 5, 16), (2, 3, 0, 16), (3, 5, 16)])
def test_unsupported_shapes_are_left_to_other_kernels(cupy, shape):
    x = to(cupy, numbers(*shape))
    assert not (supported(x, x, x, None, None) and fused_attention.fits(x, x, x))


def test_rows_not_aligned_to_sixteen_bytes_are_left_to_other_kernels(cupy):
    x = to(cupy, numbers(2, 3, 5, 17))[..., 1:]
    assert not fused_attention.fits(x, x, x)
