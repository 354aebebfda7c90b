"""Modules that keep only their input, and run again when their backward needs the rest.

Chen et al. 2016, "Training deep nets with sublinear memory cost", section 4: one more forward, and the activations of
one module at a time instead of those of all.
"""

from dataclasses import replace
from typing import Any, NamedTuple

from tinyvit import levels
from tinyvit.nn.buffers import BufferUpdate
from tinyvit.nn.context import Context
from tinyvit.nn.module import Module
from tinyvit.nn.tree import tree


class RecomputedCache(NamedTuple):
    """The inputs from which a module's cache is computed again.

    Every other attribute is that of the module's own cache, computed each time it is read: keep `cache.attn.heads` in a
    variable if you need it twice. As for any backward, the parameters must be those of the forward.
    """

    module: Module
    inputs: tuple[Any, ...]
    ctx: Context
    level: str  # of the kernels that the forward ran on; the same kernels give the same bits
    updates: tuple[BufferUpdate, ...] = ()  # of the forward; recomputing makes them again, but they count once

    __repr__ = tree

    def again(self):
        """The module's own cache, computed again; the observer was told its values in the forward."""
        with levels.using(self.level):
            _, cache = self.module(*self.inputs, replace(self.ctx, recompute=False, keep_caches=True, observer=None))
        return cache

    def __getattr__(self, name):
        if name.startswith("_"):  # what NumPy, copy and pickle ask any object for
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self.again(), name)


def with_recompute(module, *inputs, ctx):
    """`module(*inputs, ctx)`, with a RecomputedCache if the context asks for recomputation.

    The backward that follows gets the same bits as without, dropout included: random numbers are a function of the
    context's key, which is kept.
    """
    if not keeps_inputs_only(ctx):
        return module(*inputs, ctx)
    outputs, updates = module(*inputs, replace(ctx, recompute=False, keep_caches=False))
    return outputs, RecomputedCache(module, inputs, ctx, levels.level(), updates or ())


def keeps_inputs_only(ctx):
    """Whether the context asks for recomputation."""
    return ctx is not None and ctx.recompute and ctx.keep_caches


def recompute_cache(cache):
    """The module's own cache, for its backward, from either one that `with_recompute` gives."""
    return cache.again() if isinstance(cache, RecomputedCache) else cache
