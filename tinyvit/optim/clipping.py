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
    if not max_norm > 0:
        raise ValueError(f"expected a positive norm to clip to, got {max_norm}")
    norm = global_norm(model)
    grad = model.storage.gradients()
    xp = array_module(grad)
    max_norm = min(max_norm, float(xp.finfo(grad.dtype).max))  # infinity clips nothing
    scale = max_norm / xp.maximum(norm, max_norm)
    for segment in model.storage.segments():
        if segment.trainable:
            grad[segment.where] *= scale
    return norm
