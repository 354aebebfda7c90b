"""CLIP's operations on a GPU, in every dtype, against the reference on the CPU."""

import numpy as np
import pytest
from numbers_of import EPSILON, numbers, to
from test_shifted_windows import assert_close

from tinyvit import functional as F


@pytest.mark.parametrize("dtype", EPSILON)
def test_quick_gelu_and_its_gradient_are_those_of_the_reference(cupy, dtype):
    x, dy = numbers(2, 3, 8, dtype=dtype), numbers(2, 3, 8, dtype=dtype, seed=1)
    y, cache = F.quick_gelu(to(cupy, x, dtype))
    expected, c = F.quick_gelu.reference(x)
    assert_close(y, expected, dtype)
    assert_close(F.quick_gelu_backward(to(cupy, dy, dtype), cache), F.quick_gelu_backward.reference(dy, c), dtype)


def test_words_become_vectors_and_their_gradients_add_up(cupy):
    weight, index = numbers(5, 4), np.array([[0, 2, 2], [4, 2, 0]])
    y, cache = F.embedding(to(cupy, weight), cupy.asarray(index))
    expected, c = F.embedding.reference(weight, index)
    assert_close(y, expected, "float32")
    dy = numbers(2, 3, 4, seed=1)
    assert_close(F.embedding_backward(to(cupy, dy), cache), F.embedding_backward.reference(dy, c), "float32")


@pytest.mark.parametrize("dtype", EPSILON)
def test_the_loss_is_float32_and_its_gradient_of_the_dtype_of_the_logits(cupy, dtype):
    z = numbers(4, 4, dtype=dtype)
    loss, cache = F.contrastive_loss(to(cupy, z, dtype))
    expected, c = F.contrastive_loss.reference(z)
    assert_close(loss, expected, "float32")
    assert_close(F.contrastive_loss_backward(1.0, cache), F.contrastive_loss_backward.reference(1.0, c), dtype)


@pytest.mark.parametrize("dtype", EPSILON)
def test_similarities_are_those_of_the_reference(cupy, dtype):
    x, y = numbers(3, 8, dtype=dtype), numbers(2, 8, dtype=dtype, seed=1)
    scale = np.array([0.5], "float32")
    logits, _ = F.similarity(to(cupy, x, dtype), to(cupy, y, dtype), to(cupy, scale))
    assert_close(logits, F.similarity.reference(x, y, scale)[0], dtype)
