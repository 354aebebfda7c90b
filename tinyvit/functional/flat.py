"""Operations on the flat arrays of a model, besides an optimizer's step."""

from tinyvit.arrays import array_module
from tinyvit.dispatch import operation


@operation
def squared_norm(x):
    """Σ x² of a flat array (n,), a scalar of its dtype where the array is."""
    return array_module(x).vdot(x, x)


@operation(arrays="average x", in_place="average")
def move_average(average, x, share):
    """e ← e + share · (x − e) of flat arrays (n,), in place; nothing is returned.

    share   1 − d of an average with decay d: from 0, which changes nothing, to 1; a float or, on a GPU, a scalar there
    """
    require_alike(move_average, average=average, x=x)
    average += share * (x - average)


def require_alike(update, **arrays):
    """Raise ValueError unless arrays fit an update in place: of one shape, all real or all complex, and writeable."""
    name, shapes = update.__name__, {array.shape for array in arrays.values()}
    if len(shapes) > 1:
        found = ", ".join(f"{key} {array.shape}" for key, array in arrays.items())
        raise ValueError(f"{name}: expected arrays of one shape, got {found}")
    if len({array.dtype.kind for array in arrays.values()}) > 1:
        found = ", ".join(f"{key} {array.dtype}" for key, array in arrays.items())
        raise ValueError(f"{name}: expected arrays of real numbers, or all of complex ones, got {found}")
    for key in update.in_place:
        if not getattr(arrays[key].flags, "writeable", True):  # CuPy's always are
            raise ValueError(f"{name}: expected {key} as an array to update, got a read-only one")
