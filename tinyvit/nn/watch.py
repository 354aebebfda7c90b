"""Gradients reported to an observer, at no cost for models without one."""

import copy
from functools import partial

from tinyvit.nn.module import Module, backward_in_scope


def watch(model, observer):
    """A copy of a module tree whose backward computes the same bits and reports every gradient to an observer.

    After each module's backward it calls `observer.gradient(path, dy, dx)`; dx is None where it isn't computed, as that
    of the images in a `train_step`. The copy shares parameters, buffers and caches with the model, which doesn't
    change: `watch(model, observer).backward(dy, cache)` takes the cache of a forward of either. `Context(observer=…)`
    reports the values of the forward.
    """
    copies = {}

    def copied(value):
        if isinstance(value, (list, tuple)):
            return type(value)(map(copied, value)) if any(isinstance(item, Module) for item in value) else value
        if not isinstance(value, Module):
            return value
        if id(value) not in copies:
            twin = copies[id(value)] = copy.copy(value)
            vars(twin).update({name: copied(item) for name, item in vars(value).items()})
            twin.backward = partial(watched_backward, twin, observer)
        return copies[id(value)]

    return copied(model)


def watched_backward(module, observer, dy, cache):
    """A module's backward, its gradients reported."""
    dx = backward_in_scope(module, dy, cache)
    observer.gradient(module.path, dy, dx)
    return dx
