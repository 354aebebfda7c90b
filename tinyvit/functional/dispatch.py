"""What stands between a caller and the plain text of an operation.

The text in this folder is the definition. `kernels/` may register something faster for one array library and
dtype; the dispatcher picks it, unless the caller is inside `with tinyvit.reference():`. It also gives every
backward its `into=`, which the plain text never mentions.
"""

import functools
import inspect
from contextlib import contextmanager
from contextvars import ContextVar

import numpy as np

from tinyvit.backend import array_module

_plain_text_only = ContextVar("tinyvit.reference", default=False)


@contextmanager
def reference():
    """Inside `with tinyvit.reference():` every operation runs its plain text, no kernel.

    Threads that tinyvit starts inherit the setting. A backward follows its cache: what a kernel's forward
    left in a cache of its own type goes back through that kernel, wherever the backward is called.
    """
    token = _plain_text_only.set(True)
    try:
        yield
    finally:
        _plain_text_only.reset(token)


def kind(x):
    """What kernels are registered under: the array library's name and the dtype's, as ("numpy", "float32")."""
    return array_module(x).__name__, str(getattr(x, "dtype", None))


def operation(reference):
    """Make a forward `(x, ...) -> (result, cache)` an operation that kernels can be registered for.

    The result is called like the function itself and has its signature and docstring. `op.reference` is always
    the plain text; `op.register(kind, kernel)` adds a kernel, with the same signature, for arrays of that kind.
    """
    kernels = {}
    first_name = next(iter(inspect.signature(reference).parameters))

    @functools.wraps(reference)
    def forward(*args, **kwargs):
        function = reference
        if kernels and not _plain_text_only.get():
            function = kernels.get(kind(args[0] if args else kwargs.get(first_name)), reference)
        return function(*args, **kwargs)

    forward.reference = reference
    forward.kernels = kernels
    forward.register = kernels.__setitem__
    return forward


def backward_of(forward):
    """Make a backward `(dy, cache) -> gradients` the other half of `forward`, with kernels and `into=`.

    into    one entry for each parameter argument of the forward (they come last among its arrays, so their
            gradients are the last ones returned). An array: the gradient is added to it, and it is returned in
            the gradient's place. False: the gradient is not wanted, and None is returned in its place.
            None: a new array, as without `into`.

    `op_backward.register(kind, kernel)` adds a kernel `(dy, cache, into=None)` that understands the plain text's
    cache; `op_backward.register_cache(type, kernel)` one that goes with a kernel's own cache type.
    """

    def decorate(reference):
        kernels, own_caches = {}, {}

        @functools.wraps(reference)
        def backward(dy, cache, into=None):
            if isinstance(dy, np.generic):
                dy = dy.item()  # a Python number, which never changes the dtype of what it is multiplied with
            kernel = own_caches.get(type(cache))
            if kernel is None and kernels and not _plain_text_only.get():
                kernel = kernels.get(kind(dy))
            if kernel is not None:
                return kernel(dy, cache, into=into)
            gradients = reference(dy, cache)
            return gradients if into is None else add_into(gradients, into)

        backward.reference = reference
        backward.kernels = kernels
        backward.register = kernels.__setitem__
        backward.register_cache = own_caches.__setitem__
        forward.backward = backward
        return backward

    return decorate


def add_into(gradients, into):
    """Put the last `len(into)` gradients where `into` says; see `backward_of`."""
    gradients = list(gradients) if isinstance(gradients, tuple) else [gradients]
    if len(into) > len(gradients):
        raise ValueError(f"into= has {len(into)} entries for {len(gradients)} gradients")
    first = len(gradients) - len(into)
    for i, destination in enumerate(into, start=first):
        if destination is False:
            gradients[i] = None
        elif destination is not None:
            destination += gradients[i]
            gradients[i] = destination
    return tuple(gradients)
