import re

import numpy as np
import pytest
from numbers_of import DTYPE, LOW, numbers, to

import tinyvit
from tinyvit import functional as F
from tinyvit.dispatch import backward_of, operation
from tinyvit.kernels.cuda.through_float32 import through_float32


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
    y, cache = shifted_square(shift=to(cupy, shift), x=to(cupy, x, dtype))
    assert y.dtype == DTYPE[dtype] and cache[0].dtype == "float32"
    np.testing.assert_array_equal(y.get(), (x * x + shift).astype("float32").astype(DTYPE[dtype]))
    total = cupy.ones(4, "float32")
    for into, wanted in ((None, True), ((False,), False), ((total,), True)):
        dx, dshift = shifted_square_backward(to(cupy, dy, dtype), cache, into=into)
        assert dx.dtype == DTYPE[dtype]
        np.testing.assert_array_equal(dx.get(), (2 * dy * x).astype("float32").astype(DTYPE[dtype]))
        assert dshift.dtype == "float32" if wanted else dshift is None
    np.testing.assert_allclose(total.get(), 1 + dy.sum(0), rtol=1e-6)


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
        for half, arguments in ((without_a_kernel, ()), (without_a_kernel_backward, ((),))):
            says = f"{half.__name__}: no kernel for {dtype} arrays {where}, and the reference implementation needs"
            with pytest.raises(ValueError, match=re.escape(says)):
                half(array, *arguments)
    with tinyvit.reference(), pytest.raises(ValueError, match="rope: .* on the GPU inside tinyvit.reference()"):
        F.rope(to(cupy, numbers(1, 1, 4, 4), dtype), (2, 2))
