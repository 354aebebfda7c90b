import re

import numpy as np
import pytest
from numbers_of import DTYPE, EPSILON, numbers, to

import tinyvit
from tinyvit import functional as F
from tinyvit.dispatch import backward_of, operation
from tinyvit.kernels.cuda.through_float32 import through_float32

LOW = ("bfloat16", "float16")


@operation
def shifted_square(x, shift):
    return x * x + shift, (x,)


@backward_of(shifted_square, parameters=lambda cache: [cache[0].shape[1:]])
def shifted_square_backward(dy, cache):
    return 2 * dy * cache[0], dy.sum(0)


through_float32(shifted_square)


@pytest.mark.parametrize("dtype", LOW)
def test_an_operation_runs_in_float32_and_returns_the_input_dtype(cupy, dtype):
    x, dy, shift = numbers(3, 4, dtype=dtype), numbers(3, 4, dtype=dtype, seed=1), numbers(4, seed=2)
    for y, cache in (
        shifted_square(to(cupy, x, dtype), to(cupy, shift)),
        shifted_square(shift=to(cupy, shift), x=to(cupy, x, dtype)),
    ):
        assert y.dtype == DTYPE[dtype] and cache[0].dtype == "float32"
        np.testing.assert_array_equal(y.get(), (x * x + shift).astype("float32").astype(DTYPE[dtype]))
    total = cupy.asarray(np.ones(4, "float32"))
    for into in (None, (False,), (total,)):
        dx, dshift = shifted_square_backward(to(cupy, dy, dtype), cache, into=into)
        assert dx.dtype == DTYPE[dtype]
        np.testing.assert_array_equal(dx.get(), (2 * dy * x).astype("float32").astype(DTYPE[dtype]))
        if into and into[0] is False:
            assert dshift is None
        else:
            assert dshift.dtype == "float32" and (into is None or dshift is total)
    np.testing.assert_allclose(total.get(), 1 + dy.sum(0), rtol=1e-6)


@pytest.mark.parametrize("dtype", LOW)
def test_parts_of_a_batch_are_gathered_without_rounding(cupy, dtype):
    x, others, dy = (numbers(3, 4, dtype=dtype, seed=seed) for seed in range(3))
    given = to(cupy, x, dtype)
    y, cache = F.gather_batch(given)
    assert y.dtype == DTYPE[dtype] and cache.where == slice(0, 3)
    np.testing.assert_array_equal(y.get().astype("float64"), x)
    both = np.concatenate([x, others])
    y, _ = F.gather_batch(given, lambda part: [part, (b"", to(cupy, others.astype("float32")))])
    assert y.dtype == DTYPE[dtype]
    np.testing.assert_array_equal(y.get().astype("float64"), both)
    np.testing.assert_array_equal(F.gather_batch_backward(to(cupy, dy, dtype), cache).get().astype("float64"), dy)


@pytest.mark.parametrize("dtype", LOW)
def test_rope_in_low_precision_is_off_by_one_rounding(cupy, dtype):
    x, dy = numbers(2, 3, 7, 8, dtype=dtype), numbers(2, 3, 7, 8, dtype=dtype, seed=1)
    y, cache = F.rope(to(cupy, x, dtype), (2, 3))
    dx = F.rope_backward(to(cupy, dy, dtype), cache)
    wanted, c = F.rope.reference(x, (2, 3))
    for got, want in ((y, wanted), (dx, F.rope_backward.reference(dy, c))):
        assert got.dtype == DTYPE[dtype]
        np.testing.assert_allclose(got.get().astype("float64"), want, rtol=EPSILON[dtype], atol=1e-6)


@pytest.mark.parametrize("dtype", LOW)
def test_operations_that_only_move_numbers_accept_any_dtype(cupy, dtype):
    x = numbers(2, 3, 4, 6, dtype=dtype)
    patches, cache = F.patchify(to(cupy, x, dtype), 2)
    np.testing.assert_array_equal(patches.get().astype("float64"), F.patchify.reference(x, 2)[0])
    back = F.unpatchify(patches, 2, (4, 6))[0]
    for images in (F.patchify_backward(patches, cache), back):
        np.testing.assert_array_equal(images.get().astype("float64"), x)
    index = np.array([[2, 0], [5, 1]])
    tokens, cache = F.take_tokens(patches, cupy.asarray(index))
    expected, c = F.take_tokens.reference(patches.get().astype("float64"), index)
    np.testing.assert_array_equal(tokens.get().astype("float64"), expected)
    dx = F.take_tokens_backward(tokens, cache)
    np.testing.assert_array_equal(dx.get().astype("float64"), F.take_tokens_backward.reference(expected, c))


@operation
def without_a_kernel(x):
    return x + x, ()


@backward_of(without_a_kernel)
def without_a_kernel_backward(dy, cache):
    return dy + dy


@pytest.mark.parametrize("dtype", LOW)
def test_the_reference_refuses_low_precision_by_name(cupy, dtype):
    x = numbers(3)
    for array, where in ((to(cupy, x, dtype), "of CuPy on the GPU"), (x.astype(DTYPE[dtype]), "of NumPy on the CPU")):
        for name, call in (
            ("without_a_kernel", lambda array=array: without_a_kernel(array)),
            ("without_a_kernel_backward", lambda array=array: without_a_kernel_backward(array, ())),
        ):
            says = f"{name}: no kernel for {dtype} arrays {where}, and the reference implementation needs"
            with pytest.raises(ValueError, match=re.escape(says)):
                call()
    with tinyvit.reference(), pytest.raises(ValueError, match="rope: .* on the GPU inside tinyvit.reference()"):
        F.rope(to(cupy, numbers(1, 1, 4, 4), dtype), (2, 2))
