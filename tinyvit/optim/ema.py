"""A moving average of the weights, which often predicts better than the last ones."""

from contextlib import contextmanager

import numpy as np

from tinyvit.arrays import array_module
from tinyvit.functional.flat import move_average
from tinyvit.optim.optimizers import CHUNK_ENTRIES, FlatState
from tinyvit.validation import require


class EMA(FlatState):
    """An exponential moving average of a model's parameters, starting from their present values:

        e ← d e + (1 − d) θ     d = min(decay, (1 + t) / (10 + t)) with `warmup`, else d = decay

    after t updates, so that it forgets the first weights faster. It averages over about 1 / (1 − decay) steps.
    Polyak & Juditsky 1992; the warm-up is that of TensorFlow's `ExponentialMovingAverage`. Buffers, running
    statistics among them, are the model's own.

    average   the flat array e, laid out as the model's own
    t         the number of updates: an int, or on a GPU a scalar there
    """

    slots = ("average",)
    average = property(lambda self: self.state[0])

    def __init__(self, model, decay=0.999, warmup=True):
        require(0 <= decay < 1, "expected a decay of at least 0 and below 1", decay)
        super().__init__(model)
        self.decay, self.warmup = decay, warmup

    def initial(self):
        """The present parameters."""
        return self.storage.data.copy()

    def update(self, where=True):
        """Update the average with the model's present parameters.

        where   False changes nothing; a boolean on a GPU decides there, and nothing waits for it
        """
        self.require_bound()
        data, t = self.storage.data, self.t
        if array_module(data) is not np:
            with self.storage.on_device():
                self.update_on_device(data, where)
        elif where:
            d = min(self.decay, (1 + t) / (10 + t)) if self.warmup else self.decay
            self.t += 1
            for start in range(0, len(data), CHUNK_ENTRIES):
                e, theta = self.average[start : start + CHUNK_ENTRIES], data[start : start + CHUNK_ENTRIES]
                move_average(e, theta, 1 - d)  # d e + (1 − d) θ, but exact where θ = e

    def update_on_device(self, theta, where):
        """Update the average on a GPU, where t and d are scalars on the device."""
        xp, e, t = array_module(theta), self.average, self.t
        self.t = t + where
        share = xp.maximum(9 / (10 + t), 1 - self.decay) if self.warmup else 1 - self.decay  # 1 − d
        alpha = (self.t - t) * share  # 0 where nothing changes
        move_average(e, theta, alpha.astype(e.dtype))

    @contextmanager
    def apply(self):
        """Inside this, the model has the averaged parameters; afterwards its own again, bit for bit."""
        self.require_bound()
        data = self.storage.data
        with self.storage.on_device():
            own = data.copy()
            data[:] = self.average
        try:
            yield self.model
        finally:
            with self.storage.on_device():
                data[:] = own
