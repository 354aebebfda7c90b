"""Windows, gates and distillation on a GPU, in every dtype, against the reference on the CPU."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numbers_of import EPSILON, numbers, to

from tinyvit import functional as F
from tinyvit.models.swin import SwinBlock


def assert_close(got, expected, dtype, rounding=2):
    assert str(got.dtype) == dtype and got.shape == np.shape(expected)
    bound = rounding * EPSILON[dtype] + 1e-6
    np.testing.assert_allclose(got.get().astype("float64"), expected, rtol=bound, atol=bound)


@pytest.mark.parametrize("dtype", EPSILON)
@pytest.mark.parametrize("operation, shapes, options", [
    (F.to_windows, [(2, 5, 7, 3)], dict(window=(2, 3), shift=1)),
    (F.from_windows, [(18, 6, 3)], dict(sides=(5, 7), window=(2, 3), shift=1)),
    (F.merge_patches, [(2, 5, 4, 3)], {}),
    (F.sigmoid, [(4, 5)], {}),
    (F.silu, [(4, 5)], {}),
    (F.swiglu, [(4, 6)], {}),
    (F.scale_channels, [(2, 3, 4, 5), (2, 3)], {}),
], ids=lambda value: getattr(value, "__name__", None))  # fmt: skip
def test_results_and_gradients_are_those_of_the_reference(cupy, dtype, operation, shapes, options):
    arrays = [numbers(*shape, dtype=dtype, seed=i) for i, shape in enumerate(shapes)]
    y, cache = operation(*(to(cupy, x, dtype) for x in arrays), **options)
    expected, c = operation.reference(*arrays, **options)
    assert_close(y, expected, dtype)
    dy = numbers(*expected.shape, dtype=dtype, seed=9)
    got, want = operation.backward(to(cupy, dy, dtype), cache), operation.backward.reference(dy, c)
    for a, b in zip(*((g if isinstance(g, tuple) else (g,)) for g in (got, want)), strict=True):
        assert_close(a, b, dtype, rounding=8)


@pytest.mark.parametrize("dtype", EPSILON)
@given(
    sides=st.tuples(*[st.integers(1, 9)] * 2), window=st.tuples(*[st.integers(1, 5)] * 2), shift=st.integers(0, 4),
    width=st.sampled_from([1, 3, 8, 16]), B=st.integers(0, 3),
)  # fmt: skip
def test_windows_hold_the_same_bits_as_the_references(cupy, dtype, sides, window, shift, width, B):
    shift = min(shift, min(window) - 1)
    x = numbers(B, *sides, width, dtype=dtype)
    y, cache = F.to_windows(to(cupy, x, dtype), window, shift)
    expected, c = F.to_windows.reference(x, window, shift)
    np.testing.assert_array_equal(y.get().astype("float64"), expected)
    back, joined = F.from_windows(y, sides, window, shift)
    np.testing.assert_array_equal(back.get().astype("float64"), x)
    np.testing.assert_array_equal(F.from_windows_backward(back, joined).get(), y.get())
    dy = numbers(*expected.shape, dtype=dtype, seed=1)
    dx = F.to_windows_backward(to(cupy, dy, dtype), cache).get().astype("float64")
    np.testing.assert_array_equal(dx, F.to_windows_backward.reference(dy, c))


@pytest.mark.parametrize("dtype", EPSILON)
def test_layer_scales_results_are_those_of_the_reference_and_its_factors_gradients_are_float32(cupy, dtype):
    x, weight, dy = numbers(2, 4, 5, dtype=dtype), numbers(5, seed=1), numbers(2, 4, 5, dtype=dtype, seed=2)
    y, cache = F.layer_scale(to(cupy, x, dtype), to(cupy, weight))
    expected, c = F.layer_scale.reference(x, weight)
    assert_close(y, expected, dtype)
    (dx, dweight), (dx_expected, dweight_expected) = (
        F.layer_scale_backward(to(cupy, dy, dtype), cache), F.layer_scale_backward.reference(dy, c)
    )  # fmt: skip
    assert_close(dx, dx_expected, dtype)
    assert_close(dweight, dweight_expected, "float32", rounding=8)


def test_relative_positions_and_their_gradient_are_those_of_the_reference(cupy):
    table, dy = numbers(49, 3), numbers(3, 12, 12, seed=1)
    bias, cache = F.relative_bias(to(cupy, table), (4, 4), (3, 4))
    expected, c = F.relative_bias.reference(table, (4, 4), (3, 4))
    assert_close(bias, expected, "float32")
    assert_close(F.relative_bias_backward(to(cupy, dy), cache), F.relative_bias_backward.reference(dy, c), "float32")


@pytest.mark.parametrize("dtype", EPSILON)
def test_the_loss_of_a_student_is_float32_and_its_gradient_of_the_logits_dtype(cupy, dtype):
    logits, teacher = numbers(4, 5, dtype=dtype), numbers(4, 5, dtype=dtype, seed=1)
    loss, cache = F.distillation(to(cupy, logits, dtype), to(cupy, teacher, dtype), 2.0)
    expected, c = F.distillation.reference(logits, teacher, 2.0)
    assert_close(loss, expected, "float32")
    assert_close(F.distillation_backward(1.0, cache), F.distillation_backward.reference(1.0, c), dtype)


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "float16"])
def test_a_shifted_block_and_its_gradients_are_those_of_the_cpu(cupy, precision):
    def block(**where):
        made = SwinBlock(8, 2, 2, True, 16, qkv_bias=True, norm_eps=1e-5, drop_path=0.0)
        return made.materialize(seed=1, **where)

    ours, theirs = block(), block(device="cuda", precision=precision)
    maps, dy = numbers(2, 8, 4, 6), numbers(2, 8, 4, 6, seed=1)
    y, cache = ours(maps)
    dx = ours.backward(dy, cache)
    got, cache = theirs(to(cupy, maps, precision))
    dgot = theirs.backward(to(cupy, dy, precision), cache)
    bound = {"float32": 1e-5}.get(precision, 5e-2)
    for a, b in ((got, y), (dgot, dx)):
        np.testing.assert_allclose(a.get().astype("float64"), b, rtol=bound, atol=bound * abs(b).max())
    for (name, p), (_, q) in zip(ours.named_parameters(), theirs.named_parameters()):
        atol = bound * abs(p.grad).max() + 1e-6
        np.testing.assert_allclose(q.grad.get(), p.grad, rtol=bound, atol=atol, err_msg=name)
