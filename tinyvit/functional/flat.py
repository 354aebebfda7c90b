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
    average += share * (x - average)
