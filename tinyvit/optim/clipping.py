"""The norm of the gradients, and clipping to it."""

from tinyvit.backend import array_module
from tinyvit.functional.flat import squared_norm


def global_norm(model):
    """√Σ g² over the gradients of all trainable parameters, a scalar on the model's device."""
    storage = model.storage
    grad = storage.gradients()
    xp = array_module(grad)
    squares = [squared_norm(grad[s.where]) for s in storage.segments() if s.trainable]
    return sum(squares, start=xp.zeros((), grad.dtype)) ** 0.5


def clip_by_global_norm(model, max_norm):
    """Scale the gradients of all trainable parameters by max_norm / max(norm, max_norm), in place.

    Returns the norm before clipping. Pascanu et al. 2013, algorithm 1. Nothing waits for a GPU.
    """
    norm = global_norm(model)
    grad = model.storage.gradients()
    scale = clipping_factor(norm, max_norm)
    for segment in model.storage.segments():
        if segment.trainable:
            grad[segment.where] *= scale
    return norm


def clip_by_each_norm(model, max_norm):
    """Scale the gradient of each trainable parameter likewise, by its own norm, in place.

    Returns the global norm before that. Caron et al. 2021 clip like this in their code.
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
