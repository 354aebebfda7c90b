"""Modules in order, each of which reads what the one before it returned."""

from tinyvit.nn.recompute import recompute_cache, with_recompute


def stack(modules, x, ctx=None):
    """The output of the last module and a tuple of all caches: y = fₙ(… f₂(f₁(x))).

    If the context asks for recomputation, a cache holds its module's input alone: see `nn.recompute`.
    """
    caches = []
    for module in modules:
        x, cache = with_recompute(module, x, ctx=ctx)
        caches.append(cache)
    return x, tuple(caches)


def stack_backward(modules, dy, caches):
    """The gradient of the first module's input."""
    for module, cache in zip(reversed(modules), reversed(caches)):
        dy = module.backward(dy, recompute_cache(cache))
    return dy
