"""Operations on the flat arrays of a model, besides an optimizer's step."""

from tinyvit.backend import array_module
from tinyvit.dispatch import operation


@operation
def squared_norm(x):
    """Σ x² of a flat array (n,), a scalar of its dtype where the array is."""
    return array_module(x).vdot(x, x)


@operation
def move_average(average, x, share):
    """e ← e + share · (x − e) of flat arrays (n,), in place; nothing is returned.

    share   1 − d of an average with decay d: from 0, which changes nothing, to 1; a float or, on a GPU, a scalar there
    """
    require_one_shape("move_average", average=average, x=x)
    average += share * (x - average)


def require_one_shape(name, **arrays):
    """Raise ValueError unless arrays all have the shape of the first: an update in place broadcasts nothing."""
    shapes = [array.shape for array in arrays.values()]
    if shapes.count(shapes[0]) < len(shapes):
        found = ", ".join(f"{key} {array.shape}" for key, array in arrays.items())
        raise ValueError(f"{name}: expected arrays of one shape, got {found}")
