"""Vectors of length 1 and the loss between views on a GPU, in every dtype, against the reference on the CPU."""

import numpy as np
import pytest
from numbers_of import EPSILON, numbers, to
from test_shifted_windows import assert_close

from tinyvit import functional as F


@pytest.mark.parametrize("dtype", EPSILON)
def test_vectors_of_length_1_and_their_gradient_are_those_of_the_reference(cupy, dtype):
    x, dy = numbers(2, 3, 8, dtype=dtype), numbers(2, 3, 8, dtype=dtype, seed=1)
    y, cache = F.l2_normalise(to(cupy, x, dtype))
    expected, c = F.l2_normalise.reference(x)
    assert_close(y, expected, dtype)
    assert_close(F.l2_normalise_backward(to(cupy, dy, dtype), cache), F.l2_normalise_backward.reference(dy, c), dtype)


@pytest.mark.parametrize("dtype", EPSILON)
def test_the_loss_is_float32_and_its_gradient_of_the_dtype_of_the_logits(cupy, dtype):
    x, teacher = numbers(2, 4, 8, dtype=dtype), np.abs(numbers(2, 2, 8, seed=1))
    teacher = teacher / teacher.sum(-1, keepdims=True)
    loss, cache = F.dino_loss(to(cupy, x, dtype), to(cupy, teacher), 0.5)
    expected, c = F.dino_loss.reference(x, teacher, 0.5)
    assert_close(loss, expected, "float32")
    assert_close(F.dino_loss_backward(1.0, cache), F.dino_loss_backward.reference(1.0, c), dtype)
