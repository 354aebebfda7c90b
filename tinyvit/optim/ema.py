"""Averaged weights, which often predict better than the last ones."""

from contextlib import contextmanager

import numpy as np

from tinyvit.backend import array_module, to_device, to_numpy
from tinyvit.optim.optimizers import CHUNK, require_below_1, require_fit


class EMA:
    """An exponential moving average of a model's parameters, from their present values on:

        e ← d e + (1 − d) θ     d = min(decay, (1 + t) / (10 + t)) with `warmup`, else d = decay

    after t updates, so that early on it forgets the first weights faster. It averages over some 1 / (1 − decay) steps.
    Polyak & Juditsky 1992; the warm-up is TensorFlow's `ExponentialMovingAverage`. Buffers are not averaged.

    average   the flat array e, laid out as the model's own
    t         the number of updates
    """

    def __init__(self, model, decay=0.999, warmup=True):
        require_below_1("decay", decay)
        self.model, self.storage = model, model.storage
        self.decay, self.warmup, self.t = decay, warmup, 0
        self.average = self.storage.data.copy()

    def update(self):
        """Move the average on by the model's present parameters."""
        data = self.present()
        d = min(self.decay, (1 + self.t) / (10 + self.t)) if self.warmup else self.decay
        self.t += 1
        chunk = CHUNK if array_module(data) is np else len(data)
        for start in range(0, len(data), chunk):
            e, theta = self.average[start : start + chunk], data[start : start + chunk]
            e += (1 - d) * (theta - e)  # d e + (1 − d) θ, but exact where θ = e

    @contextmanager
    def applied(self):
        """Inside this, the model has the averaged parameters; afterwards its own again, bit for bit."""
        data = self.present()
        own = data.copy()
        data[:] = self.average
        try:
            yield self.model
        finally:
            data[:] = own

    def present(self):
        """The model's flat parameters; raises ValueError if it was moved to others."""
        if self.model.storage is not self.storage:
            raise ValueError("the model was moved to another dtype or device; make a new average of it")
        return self.storage.data

    def state_dict(self):
        """A copy of what is needed to go on: the number of updates and the flat average."""
        return {"t": np.array(self.t), "average": to_numpy(self.average).copy()}

    def load_state_dict(self, state):
        """Take over what `state_dict` returned; raises ValueError if it doesn't fit."""
        require_fit(self, state, ["average"])
        self.t = int(state["t"])
        self.average[:] = to_device(state["average"], self.storage.device)
