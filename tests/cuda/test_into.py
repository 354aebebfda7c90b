import numpy as np
import pytest

from tinyvit import functional as F
from tinyvit import gradcheck

CASES = {name: case for name, *case in gradcheck.operation_cases() if case[1].parameters}


@pytest.mark.parametrize("kind", ["float32", "float64", "strided"])
@pytest.mark.parametrize("name", CASES)
def test_gradients_are_added_to_destinations_of_any_dtype_and_layout(cupy, name, kind):
    forward, _, inputs = CASES[name]
    operation = getattr(F, name.partition(",")[0])
    options = {key: cupy.asarray(x) if isinstance(x, np.ndarray) else x for key, x in forward.keywords.items()}
    forward = type(forward)(operation, **options)
    y, cache = forward(*(cupy.asarray(x.astype("float32")) for x in inputs))
    dy = tuple(array + 1 for array in y) if isinstance(y, tuple) else y + 1
    expected = operation.backward(dy, cache)
    expected = expected if isinstance(expected, tuple) else (expected,)
    shapes = operation.backward.parameters(cache)
    if kind == "strided":
        into = [cupy.ones((*shape, 2), "float32")[..., 0] for shape in shapes]
    else:
        into = [cupy.ones(shape, kind) for shape in shapes]
    got = operation.backward(dy, cache, into)
    got = got if isinstance(got, tuple) else (got,)
    for goal, array, gradient in zip(into, got[-len(into) :], expected[-len(into) :]):
        assert array is goal
        np.testing.assert_allclose(goal.get(), 1 + gradient.get(), rtol=1e-5, atol=1e-5)
