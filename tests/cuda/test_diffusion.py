"""The operations of a DiT and of its training on a GPU, in every dtype, against the reference on the CPU."""

import numpy as np
import pytest
from numbers_of import EPSILON, numbers, to
from test_shifted_windows import assert_close

from tinyvit import Key
from tinyvit import functional as F

LABELS, LEVEL = np.array([2, 0, 2]), np.array([0.25, 0.75])


@pytest.mark.parametrize("dtype", EPSILON)
@pytest.mark.parametrize("operation, shapes", [
    (F.modulate, [(2, 3, 4), (2, 4), (2, 4)]), (F.add_gated, [(2, 3, 4), (2, 3, 4), (2, 4)]),
], ids=["modulate", "add_gated"])  # fmt: skip
def test_what_a_condition_does_is_that_of_the_reference(cupy, dtype, operation, shapes):
    inputs = [numbers(*shape, dtype=dtype, seed=seed) for seed, shape in enumerate(shapes)]
    y, cache = operation(*(to(cupy, x, dtype) for x in inputs))
    expected, c = operation.reference(*inputs)
    assert_close(y, expected, dtype)
    dy = numbers(2, 3, 4, dtype=dtype, seed=5)
    found, wanted = operation.backward(to(cupy, dy, dtype), cache), operation.backward.reference(dy, c)
    for got, want in zip(found, wanted, strict=True):
        assert_close(got, want, dtype)


def test_rows_of_a_table_and_their_gradient_are_those_of_the_reference(cupy):
    weight, dy = numbers(4, 5), numbers(3, 5, seed=1)
    y, cache = F.embed_labels(to(cupy, weight), cupy.asarray(LABELS))
    expected, c = F.embed_labels.reference(weight, LABELS)
    assert_close(y, expected, "float32")
    found = F.embed_labels_backward(to(cupy, dy), cache)
    assert_close(found, F.embed_labels_backward.reference(dy, c), "float32")


@pytest.mark.parametrize("dtype", EPSILON)
def test_noise_is_added_as_by_the_reference(cupy, dtype):
    x, noise, dy = (numbers(2, 3, 4, dtype=dtype, seed=seed) for seed in range(3))
    y, cache = F.add_noise(to(cupy, x, dtype), to(cupy, noise), cupy.asarray(LEVEL))
    expected, c = F.add_noise.reference(x, noise, LEVEL)
    assert_close(y, expected, dtype)
    assert_close(F.add_noise_backward(to(cupy, dy, dtype), cache), F.add_noise_backward.reference(dy, c), dtype)


@pytest.mark.parametrize("dtype", EPSILON)
def test_the_bound_is_float32_and_its_gradient_of_the_dtype_of_x(cupy, dtype):
    x, gap = numbers(2, 3, 4, dtype=dtype, scale=0.5), numbers(2, 3, 4, seed=1, scale=0.3)
    place = np.random.default_rng(0).random((2, 3, 4))
    options = np.full(2, -2.0), np.full(2, 0.5), np.array([True, False]), 0.25, np.stack([place < 0.2, place > 0.8])
    there = [cupy.asarray(option) if isinstance(option, np.ndarray) else option for option in options]
    loss, cache = F.variational_bound(to(cupy, x, dtype), to(cupy, gap), *there)
    expected, c = F.variational_bound.reference(x, gap, *options)
    assert_close(loss, expected, "float32", rounding=8)
    got, want = F.variational_bound_backward(1.0, cache), F.variational_bound_backward.reference(1.0, c)
    assert_close(got, want, dtype, rounding=8)


def test_normal_numbers_are_those_of_the_cpu(cupy):
    key = Key(3, 4, "noise")
    np.testing.assert_allclose(key.normal((5, 7), cupy).get(), key.normal((5, 7)), rtol=1e-6, atol=1e-7)


def test_times_are_those_of_the_cpu(cupy):
    t = np.array([0, 17, 999])
    np.testing.assert_allclose(F.timestep_embedding(cupy.asarray(t)).get(), F.timestep_embedding(t), atol=1e-12)
