import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import LAYOUTS, every_shape_that_broadcasts, laid_out, seeds

from tinyvit import functional as F
from tinyvit import kernels


@st.composite
def cases(draw):
    """q, k, v and dy in any memory order, with one query up to several tiles of queries."""
    B, H = draw(st.integers(1, 2)), draw(st.integers(1, 3))
    Nq, Nk = draw(st.sampled_from([1, 2, 7, 65])), draw(st.sampled_from([1, 3, 16, 65, 1500]))
    d, dv = draw(st.sampled_from([1, 3, 16])), draw(st.sampled_from([1, 4, 16]))
    generator, scale = np.random.default_rng(draw(seeds())), draw(st.sampled_from([0.1, 1.0]))
    shapes = (B, H, Nq, d), (B, H, Nk, d), (B, H, Nk, dv), (B, H, Nq, dv)
    return [
        laid_out(np.float32(scale) * generator.standard_normal(shape, "float32"), draw(st.sampled_from(LAYOUTS)))
        for shape in shapes
    ]


def errors(got, exact, floors):
    """The largest error of each array relative to its largest number, or to the terms that cancel in it."""
    assert all(x.dtype == "float32" and x.shape == y.shape for x, y in zip(got, exact, strict=True))
    return [np.abs(x - y).max() / (np.abs(y).max() + floor) for x, y, floor in zip(got, exact, floors, strict=True)]


@given(cases())
def test_the_kernel_is_the_reference_implementation_to_a_float32s_last_digits(case):
    *inputs, dy = case
    y, cache = F.attention(*inputs)
    doubles = [x.astype("float64") for x in inputs]
    exact, exact_cache = F.attention.reference(*doubles)
    expected = F.attention_backward.reference(dy.astype("float64"), exact_cache)
    largest = np.abs(doubles[0] @ doubles[1].mT).max() * cache.scale  # exp's argument has the digits that this leaves
    bound = 3e-6 * max(1.0, largest)
    assert max(errors((y, cache.probs), (exact, exact_cache.probs), (1e-3, 0))) < bound
    q, k, v, dy_largest = (np.abs(x).max() for x in case)
    floors = dy_largest * v * k * cache.scale, dy_largest * v * q * cache.scale, dy_largest * exact_cache.probs.max()
    assert max(errors(F.attention_backward(dy, cache), expected, floors)) < bound


@pytest.mark.parametrize("tokens", [1, 17, 65])
def test_queries_keys_and_values_side_by_side_give_gradients_side_by_side(tokens):
    generator = np.random.default_rng(0)
    qkv, dy = generator.standard_normal((2, tokens, 3, 4, 8), "float32"), np.ones((2, 4, tokens, 8), "float32")
    y, cache = F.attention(*qkv.transpose(2, 0, 3, 1, 4))
    expected, expected_cache = F.attention.reference(*qkv.transpose(2, 0, 3, 1, 4))
    np.testing.assert_allclose(y, expected, rtol=2e-6, atol=2e-6)
    for got, want in zip(F.attention_backward(dy, cache), F.attention_backward.reference(dy, expected_cache)):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def biased_case(shape, sides=(3, 2, 7, 9), masked=False):
    """q, k, v, dy and a bias in float32, some of it −∞ if `masked`."""
    (B, H, Nq, Nk), generator = sides, np.random.default_rng(0)
    q, k, v, dy, bias = (
        generator.standard_normal(x, "float32")
        for x in ((B, H, Nq, 4), (B, H, Nk, 4), (B, H, Nk, 5), (B, H, Nq, 5), shape)
    )
    if masked:
        bias[generator.random(shape) < 0.4] = -np.inf
        bias.reshape(-1, bias.shape[-1])[0] = -np.inf
    return q, k, v, dy, bias


def compare_with_the_reference(operation, q, k, v, dy, bias, tolerance=1e-5):
    y, cache = operation(q, k, v, bias)
    exact, c = F.attention.reference(*(x.astype("float64") for x in (q, k, v, bias)))
    got = y, cache.probs, *F.attention_backward(dy, cache)
    expected = exact, c.probs, *F.attention_backward.reference(dy.astype("float64"), c)
    for x, want in zip(got, expected, strict=True):
        assert x.dtype == "float32"
        np.testing.assert_allclose(x, want, rtol=tolerance, atol=tolerance * max(1, abs(want).max()))


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("operation", [F.attention, F.tiled_attention])
def test_a_bias_of_every_shape_that_broadcasts_is_added_and_gets_its_gradient(operation, masked):
    for shape in ((), *every_shape_that_broadcasts(3, 2, 7, 9)):
        if shape or not masked:
            q, k, v, dy, bias = biased_case(shape, masked=masked)
            compare_with_the_reference(operation, q, k, v, dy, np.asarray(bias))


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("shift", [38.0, 41.0, 200.0, -38.0, -41.0, -80.0, -200.0])
def test_a_bias_that_shifts_some_queries_scores_leaves_their_heads_as_they_are(shift, masked):
    q, k, v, _, bias = biased_case((3, 2, 7, 9))
    bias[..., 4:] = -np.inf if masked else 0
    expected = F.attention(q, k, v, bias)[0]
    bias[:, :, ::2] += np.float32(shift)
    for operation in (F.attention, F.tiled_attention):
        np.testing.assert_allclose(operation(q, k, v, bias)[0], expected, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_bias_may_have_any_memory_layout(layout):
    *arrays, bias = biased_case((3, 2, 7, 9))
    compare_with_the_reference(F.attention, *arrays, laid_out(bias, layout))


def test_a_broadcast_bias_gets_a_gradient_for_each_of_its_entries():
    *arrays, bias = biased_case((9,))
    compare_with_the_reference(F.attention, *arrays, np.broadcast_to(bias, (3, 2, 7, 9)))


@pytest.mark.parametrize("shape", [(2, 100, 100), (40, 1, 1, 100), (100,), (1,)])
def test_the_gradient_of_a_bias_that_very_many_scores_share_keeps_its_digits(shape):
    *arrays, bias = biased_case(shape, (40, 2, 100, 100))
    compare_with_the_reference(F.attention, *arrays, bias, tolerance=2e-5)


def test_the_gradient_of_a_bias_has_the_same_bits_every_time():
    q, k, v, dy, bias = biased_case((2, 65, 65), (20, 2, 65, 65))
    gradients = [F.attention_backward(dy, F.attention(q, k, v, bias)[1])[3] for _ in range(3)]
    assert all((gradient == gradients[0]).all() for gradient in gradients)


def test_a_bias_in_float64_makes_the_result_float64():
    q, k, v, dy, bias = biased_case((7, 9))
    y, cache = F.attention(q, k, v, bias.astype("float64"))
    np.testing.assert_array_equal(y, F.attention.reference(q, k, v, bias.astype("float64"))[0])
    assert F.attention_backward(dy, cache)[3].shape == (7, 9)


@pytest.mark.parametrize("operation", [F.attention, F.tiled_attention, F.attention_dropout])
@pytest.mark.parametrize("signs, expected", [([1, 1], 2), ([-1, -1], 2), ([1, -1], 1), ([-1, 1], 3)])
@pytest.mark.parametrize("bias", [None, np.zeros((2, 2), "float32")], ids=["no bias", "bias"])
def test_scores_are_finite_where_the_product_alone_would_overflow(operation, signs, expected, bias):
    q = np.zeros((1, 1, 2, 4), "float32")
    q[..., 0] = 2e19  # q kᵀ is 4e38, beyond float32; q kᵀ · scale is not
    v = np.float32([[1], [3]])[None, None]
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        y, cache = operation(q, q * np.float32(signs)[:, None], v, bias)
        gradients = F.attention_backward(np.ones_like(y), cache)
        probs = cache.probs
    np.testing.assert_array_equal(y, np.full((1, 1, 2, 1), expected))
    assert all(np.isfinite(x).all() for x in (probs, *gradients))


@pytest.mark.parametrize("shape", [(8, 9), (4, 1, 7, 9), (1, 3, 2, 7, 9), (3, 2, 9, 7), (0,), (3, 2, 7, 0)])
def test_a_bias_of_another_shape_is_refused_before_a_kernel_runs(shape):
    q, k, v, _, _ = biased_case((7, 9))
    for operation in (F.attention, F.tiled_attention):
        with pytest.raises(ValueError, match="doesn't broadcast to the scores"):
            operation(q, k, v, np.ones(shape, "float32"))


@pytest.mark.parametrize(
    "q, k, v", [((2, 3, 5, 4), (2, 3, 6, 4), (2, 3, 5, 4)), ((2, 3, 5, 4), (2, 3, 6, 3), (2, 3, 6, 4)),
                ((2, 3, 5, 4), (1, 3, 6, 4), (1, 3, 6, 4)), ((2, 3, 5, 4), (2, 3, 0, 4), (2, 3, 0, 4))],
)  # fmt: skip
def test_keys_and_values_of_other_shapes_are_refused_before_a_kernel_runs(q, k, v):
    for operation in (F.attention, F.tiled_attention):
        with pytest.raises(ValueError, match="attention: expected"):
            operation(*(np.ones(shape, "float32") for shape in (q, k, v)))


@pytest.mark.parametrize("scale", [1e2, 1e4])
def test_scores_far_apart_choose_one_key_and_give_no_nan(scale):
    q = np.float32(scale) * np.eye(4, dtype="float32")[None, None]
    y, cache = F.attention(q, q, np.float32([[1], [2], [3], [4]])[None, None])
    np.testing.assert_array_equal(y[0, 0, :, 0], [1, 2, 3, 4])
    assert all(np.isfinite(gradient).all() for gradient in F.attention_backward(np.ones_like(y), cache))


def test_nan_stays_with_its_query():
    q, k, v = np.random.default_rng(0).standard_normal((3, 1, 1, 5, 4), "float32")
    q[0, 0, 2] = np.nan
    with np.errstate(invalid="ignore"):
        y, _ = F.attention(q, k, v)
    assert np.isnan(y[0, 0, 2]).all() and np.isfinite(np.delete(y[0, 0], 2, axis=0)).all()


def test_large_scores_keep_the_digits_of_small_ones():
    """Stored as one number, the log of a row's sum would be rounded to the last digit of the largest score."""
    q, k, v, dy = np.random.default_rng(0).standard_normal((4, 1, 1, 9, 4), "float32")
    q[..., 0], k[..., 0] = 1e3, 30.0
    y, cache = F.attention(q, k, v)
    exact, _ = F.attention.reference(q, k, v)
    np.testing.assert_allclose(cache.probs.sum(-1), 1, rtol=2e-6)
    np.testing.assert_allclose(y, exact, rtol=1e-2, atol=1e-2)  # the scores themselves are right to 1e-3
    np.testing.assert_allclose(F.attention_backward(dy, cache)[2].sum(-2), dy.sum(-2), rtol=1e-5, atol=1e-5)


def test_no_memory_of_the_probabilities_size_is_kept_by_the_compiled_kernel(level):
    q = np.ones((1, 2, 600, 8), "float32")
    _, cache = F.attention(q, q, q)
    kept = sum(x.size for x in cache if isinstance(x, np.ndarray))
    assert (kept < 4 * q.size) == (level == "fast")
    assert cache.probs.shape == (1, 2, 600, 600)


def test_a_backward_goes_with_its_forward_whatever_the_level(level):
    q, k, v, dy = np.random.default_rng(0).standard_normal((4, 1, 2, 9, 4), "float32")
    _, cache = F.attention(q, k, v)
    expected = F.attention_backward(dy, cache)
    for other in kernels.LEVELS:
        with kernels.using(other):
            for got, want in zip(F.attention_backward(dy, cache), expected):
                np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shape", [(5, 4), (3, 5, 4), (2, 2, 3, 5, 4)])
def test_other_numbers_of_axes_are_left_to_the_reference_implementation(shape):
    q = np.random.default_rng(0).standard_normal(shape, "float32")
    y, cache = F.attention(q, q, q)
    np.testing.assert_array_equal(y, F.attention.reference(q, q, q)[0])
    assert F.attention_backward(y, cache)[0].shape == shape


@pytest.mark.parametrize("operation", [F.attention, F.tiled_attention])
def test_other_dtypes_and_empty_arrays_are_left_to_the_reference_implementation(operation):
    q = np.random.default_rng(0).standard_normal((1, 2, 5, 4), "float32")
    for k in (q.astype("float64"), q + 0j):
        y, cache = operation(q, k, k)
        np.testing.assert_array_equal(y, operation.reference(q, k, k)[0])
        assert operation.backward(y, cache)[0].shape == q.shape
    y, cache = operation(q[:0], q[:0], q[:0])
    assert operation.backward(y, cache)[1].shape == (0, 2, 5, 4)


def test_a_complex_gradient_stays_complex():
    q, k, v, dy = np.random.default_rng(0).standard_normal((4, 1, 2, 5, 4), "float32")
    _, cache = F.attention(q, k, v)
    real, complex_ = F.attention_backward(dy, cache), F.attention_backward(1j * dy, cache)
    for x, y in zip(real, complex_):
        np.testing.assert_allclose(y.imag, x, rtol=1e-5, atol=1e-6)
