"""What a forward depends on besides its input and the parameters."""

from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from tinyvit.backend import Key

gradient_observer = ContextVar("tinyvit.observer", default=None)


@dataclass(frozen=True)
class Context:
    """All that a forward depends on besides data and parameters. No context means inference.

    training      whether dropout and stochastic depth are at work
    key           their random stream. `train_step` moves it on to the first sample of each part of a batch, and gives
                  `Key(seed)` the optimizer's step; a key that names a step, `Key(seed, 3)`, draws that one's masks
    observer      told every module's output by `observer.value(path, y)`, and, where a backward runs inside
                  `observing(observer)`, the gradients by `observer.gradient(path, dy, dx)`
    keep_caches   False drops every cache at once, when no backward will follow
    recompute     True keeps no more of a block than its input, until its backward computes the rest again: a
                  third more arithmetic for the memory of one block at a time, and the same bits; see `nn.recompute`
    """

    training: bool = False
    key: Key | None = None
    observer: Any = None
    keep_caches: bool = True
    recompute: bool = False

    def key_for(self, path):
        """The random stream of the layer at `path`, or None outside training; ValueError if there should be one."""
        if self.training and self.key is None:
            raise ValueError(f"{path}: training with dropout needs a key: Context(training=True, key=Key(seed, step))")
        return self.key.at(path) if self.training else None


@contextmanager
def observing(observer):
    """Inside this, `observer.gradient(path, dy, dx)` is told what every module's backward gets and returns."""
    token = gradient_observer.set(observer)
    try:
        yield observer
    finally:
        gradient_observer.reset(token)


def observed():
    """Whether somebody is told the gradients, here and now."""
    return gradient_observer.get() is not None
