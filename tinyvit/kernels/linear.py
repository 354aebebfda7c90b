"""`linear` with its bias added in place, and a backward that makes only the gradients that are wanted."""

from tinyvit.functional.linear import LinearCache, linear, linear_backward
from tinyvit.functional.sums import as_rows, sum_rows


def linear_in_place(x, weight, bias=None):
    if bias is None or weight.shape != bias.shape + x.shape[-1:] or not x.dtype == weight.dtype == bias.dtype:
        return linear.reference(x, weight, bias)
    y = as_rows(x) @ weight.mT
    y += bias
    return y.reshape(*x.shape[:-1], len(weight)), LinearCache(x, weight, True)


def linear_backward_wanted(dy, cache, into, inputs=True):
    """As `functional.linear_backward`, but a frozen weight (False in `into`) costs no matrix product, and neither does
    the gradient of x without `inputs`."""
    x, weight, has_bias = cache
    dy_rows = as_rows(dy)
    dx = (dy_rows @ weight).reshape(x.shape) if inputs else None
    dweight = None if into[0] is False else dy_rows.mT @ as_rows(x)
    if not has_bias:
        return dx, dweight
    return dx, dweight, None if into[1] is False else sum_rows(dy)


for dtype in ("float32", "float64", "complex128"):
    for library in ("numpy", "cupy"):  # CuPy's float32 has a kernel of its own in cuda/linear.py
        if (library, dtype) != ("cupy", "float32"):
            linear.register((library, dtype), linear_in_place)
            linear_backward.register((library, dtype), linear_backward_wanted)
