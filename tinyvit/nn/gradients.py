"""The arrays that backwards add gradients to."""

import threading
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar

_destination = ContextVar("tinyvit.gradients", default=None)  # (GradientBuffers, array) that `into` has named


class GradientBuffers:
    """The flat gradients of a storage: the model's own, made when first needed, and others for threads.

    own   the model's own, or None
    """

    def __init__(self, storage):
        self.storage, self.own, self.kept, self.lock = storage, None, [], threading.RLock()

    def new(self):
        """A zeroed array for `into`."""
        return self.storage.zeros()

    def take(self, count):
        """The model's own array and `count` − 1 others, which are kept for the next time."""
        while len(self.kept) < count - 1:
            self.kept.append(self.new())
        return [self._own(), *self.kept[: count - 1]]

    def current(self):
        """The array that this thread's gradients are added to: the one that `into` names, else the model's own."""
        owner, array = _destination.get() or (None, None)
        return array if owner is self else self._own()

    def _own(self):
        with self.lock:
            if self.own is None:
                self.own = self.new()
        return self.own

    def adding(self):
        """Hold this while adding: two threads that share the model's own array take turns."""
        owner, _ = _destination.get() or (None, None)
        return nullcontext() if owner is self else self.lock

    @contextmanager
    def into(self, array):
        """Inside this, the gradients that this thread computes are added to `array`, not to the model's own."""
        shape, dtype = (self.storage.size,), self.storage.dtype
        if array.shape != shape or array.dtype != dtype:
            raise ValueError(
                f"expected a gradient buffer {dtype} {shape}, as new_gradients() makes it, "
                f"got {array.dtype} {array.shape}"
            )
        token = _destination.set((self, array))
        try:
            yield array
        finally:
            _destination.reset(token)

    def __getstate__(self):
        return {"storage": self.storage, "own": self.own}

    def __setstate__(self, state):
        vars(self).update(state, kept=[], lock=threading.RLock())
