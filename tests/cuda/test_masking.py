"""Hidden tokens and the squared error on a GPU, in every dtype, against the reference on the CPU."""

import numpy as np
import pytest
from numbers_of import EPSILON, numbers, to
from test_shifted_windows import assert_close

from tinyvit import functional as F

INDEX = np.array([[4, 0, 2], [1, 3, 0]])


@pytest.mark.parametrize("dtype", EPSILON)
@pytest.mark.parametrize("operation, tokens, options", [
    (F.replace_tokens, 5, dict(mask=np.array([[True, False, True, False, False], [False, True, True, True, False]]))),
    (F.place_tokens, 3, dict(index=INDEX, count=5)),
], ids=["replace", "place"])  # fmt: skip
def test_tokens_and_their_gradients_are_those_of_the_reference(cupy, dtype, operation, tokens, options):
    x, token = numbers(2, tokens, 4, dtype=dtype), numbers(1, 1, 4, seed=1)
    there = {name: cupy.asarray(value) if isinstance(value, np.ndarray) else value for name, value in options.items()}
    y, cache = operation(to(cupy, x, dtype), to(cupy, token), **there)
    expected, c = operation.reference(x, token, **options)
    assert_close(y, expected, dtype)
    dy = numbers(*expected.shape, dtype=dtype, seed=2)
    dx, dtoken = operation.backward(to(cupy, dy, dtype), cache)
    want = operation.backward.reference(dy, c)
    assert_close(dx, want[0], dtype, rounding=8)
    assert_close(dtoken, want[1], "float32")


@pytest.mark.parametrize("dtype", EPSILON)
def test_the_squared_error_is_float32_and_its_gradient_of_the_dtype_of_what_was_guessed(cupy, dtype):
    x, targets = numbers(2, 3, 4, dtype=dtype), numbers(2, 3, 4, seed=1)
    loss, cache = F.mean_squared_error(to(cupy, x, dtype), to(cupy, targets))
    expected, c = F.mean_squared_error.reference(x, targets)
    assert_close(loss, expected, "float32")
    got = F.mean_squared_error_backward(1.0, cache)
    assert_close(got, F.mean_squared_error_backward.reference(1.0, c), dtype)
