"""The backward of `linear` that makes only the gradients that are wanted."""

from tinyvit.functional.linear import linear_backward
from tinyvit.functional.sums import as_rows, sum_rows


def linear_backward_wanted(dy, cache, into=None):
    """As `functional.linear_backward`, but a frozen weight (False in `into`) costs no matrix product."""
    x, weight, has_bias = cache
    dy_rows = as_rows(dy)
    gradients = [lambda: dy_rows.mT @ as_rows(x), lambda: sum_rows(dy)][: 1 + has_bias]
    into = (None,) * len(gradients) if into is None else into
    if len(into) != len(gradients):
        raise ValueError(f"linear_backward: into= has {len(into)} entries for {len(gradients)} parameter gradients")
    return (dy_rows @ weight).reshape(x.shape), *map(add_if_wanted, gradients, into)


def add_if_wanted(gradient, destination):
    if destination is False:
        return None
    if destination is None:
        return gradient()
    destination += gradient()
    return destination


for library in ("numpy", "cupy"):
    for dtype in ("float32", "float64", "complex128"):
        linear_backward.register((library, dtype), linear_backward_wanted)
