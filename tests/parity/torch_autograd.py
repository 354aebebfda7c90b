"""An operation of tinyvit against the same function in PyTorch, differentiated by autograd."""

from contextlib import nullcontext

import numpy as np
import torch

import tinyvit

BOUND = 1e-10  # against PyTorch in float64, outputs and all gradients


def normal(seed, *shapes, scale=1.0):
    """Arrays N(0, scale²) of these shapes, float64; a single one bare."""
    generator = np.random.default_rng(seed)
    arrays = [np.asarray(scale * generator.standard_normal(shape)) for shape in shapes]
    return arrays if len(arrays) > 1 else arrays[0]


def tensor(x, dtype=None):
    """A copy of an array as a tensor with `requires_grad`."""
    return torch.tensor(np.array(x, dtype, order="C"), requires_grad=True)


def by_hand(operation, arrays, dy, backward=None, **options):
    """[result, gradients …] of an operation of tinyvit and its backward."""
    y, cache = operation(*arrays, **options)
    gradients = (backward or operation.backward)(dy, cache)
    return [y, *gradients] if isinstance(gradients, tuple) else [y, gradients]


def by_autograd(function, arrays, dy):
    """[result, gradients …] of a PyTorch function of the same arrays, in the arrays' own dtype."""
    leaves = [tensor(x) for x in arrays]
    y = function(*leaves)
    y.backward(torch.tensor(np.array(dy, order="C")))
    return [y.detach().numpy(), *(leaf.grad.numpy() for leaf in leaves)]


def assert_same_as_torch(operation, function, *arrays, backward=None, **options):
    """Result and gradients of the operation, reference and kernel, are those of the PyTorch function."""
    dy = normal(0, np.shape(operation(*arrays, **options)[0]))
    expected = by_autograd(function, arrays, dy)
    for text in (nullcontext(), tinyvit.reference()):
        with text:
            got = by_hand(operation, arrays, dy, backward, **options)
        assert_all_close(dict(enumerate(got)), dict(enumerate(expected)))


def assert_all_close(got, expected, bound=BOUND):
    """The same names, and under each of them the same numbers."""
    assert got.keys() == expected.keys()
    for name, x in got.items():
        np.testing.assert_allclose(x, expected[name], rtol=bound, atol=bound, err_msg=str(name), strict=True)
