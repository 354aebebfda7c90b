"""The norm of the gradients, and clipping to it."""

from tinyvit.arrays import array_module
from tinyvit.functional.flat import squared_norm


def global_norm(model):
    """√Σ g² over the gradients of all trainable parameters, a scalar on the model's device."""
    storage = model.storage
    grad = storage.gradients()
    parts = trainable_slices(storage)
    squares = [squared_norm(grad[where]) for where in parts] or [array_module(grad).zeros((), grad.dtype)]
    return sum(squares[1:], start=squares[0]) ** 0.5


def trainable_slices(storage):
    """Slices of the flat arrays that are trained; adjacent ones are joined, whatever their decay and learning rate."""
    found = []
    for where, trainable, *_ in storage.segments():
        if trainable and found and found[-1].stop == where.start:
            found[-1] = slice(found[-1].start, where.stop)
        elif trainable:
            found.append(where)
    return found


def clip_by_global_norm(model, max_norm):
    """Scale the gradients of all trainable parameters by max_norm / max(norm, max_norm), in place.

    Returns the norm before clipping. Pascanu et al. 2013, algorithm 1. Nothing waits for a GPU.
    """
    norm = global_norm(model)
    grad = model.storage.gradients()
    scale = clipping_factor(norm, max_norm)
    for where in trainable_slices(model.storage):
        grad[where] *= scale
    return norm


def clip_by_each_norm(model, max_norm):
    """Scale the gradient of each trainable parameter by max_norm / max(its norm, max_norm), in place.

    Returns the global norm before clipping. The code of Caron et al. 2021 clips like this.
    """
    norm = global_norm(model)
    for parameter in model.parameters():
        if parameter.trainable:
            grad = parameter.grad
            grad *= clipping_factor(squared_norm(grad.reshape(-1)) ** 0.5, max_norm)
    return norm


def clipping_factor(norm, max_norm):
    """max_norm / max(norm, max_norm), a scalar where the norm is; ValueError for a max_norm that isn't positive."""
    if not max_norm > 0:
        raise ValueError(f"expected a positive norm to clip to, got {max_norm}")
    xp = array_module(norm)
    max_norm = min(max_norm, float(xp.finfo(norm.dtype).max))  # infinity clips nothing
    return max_norm / xp.maximum(norm, max_norm)
