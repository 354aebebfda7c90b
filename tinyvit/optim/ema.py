"""A moving average of the weights, which often predicts better than the last ones."""

from contextlib import contextmanager

import numpy as np

from tinyvit.arrays import array_module
from tinyvit.backend import to_device, to_numpy
from tinyvit.functional.flat import move_average
from tinyvit.optim.optimizers import CHUNK_ENTRIES, count_on, describe, own_storage, require_at_least_0, require_fit


class EMA:
    """An exponential moving average of a model's parameters, starting from their present values:

        e ← d e + (1 − d) θ     d = min(decay, (1 + t) / (10 + t)) with `warmup`, else d = decay

    after t updates, so that it forgets the first weights faster. It averages over about 1 / (1 − decay) steps.
    Polyak & Juditsky 1992; the warm-up is that of TensorFlow's `ExponentialMovingAverage`. Buffers, running
    statistics among them, are the model's own.

    average   the flat array e, laid out as the model's own
    t         the number of updates: an int, or on a GPU a scalar there
    """

    def __init__(self, model, decay=0.999, warmup=True):
        require_at_least_0("decay", decay, below=1)
        self.model, self.storage = model, own_storage(model)
        self.decay, self.warmup, self.t = decay, warmup, count_on(self.storage, 0)
        with self.storage.on_device():
            self.average = self.storage.data.copy()

    def __repr__(self):
        return describe(self)

    def update(self, where=True):
        """Update the average with the model's present parameters.

        where   False changes nothing; a boolean on a GPU decides there, and nothing waits for it
        """
        data, t = self.current_parameters(), self.t
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

    def rebind(self):
        """Follow the model after its `to`; new parameters start from their present values. Returns the average."""
        before, self.storage = self.storage, own_storage(self.model)
        if self.storage is not before:
            with self.storage.on_device():
                present = self.storage.data.copy()
            self.average = self.storage.rearrange(self.average, before, new=present)
            self.t = count_on(self.storage, self.t)
        return self

    @contextmanager
    def applied(self):
        """Inside this, the model has the averaged parameters; afterwards its own again, bit for bit."""
        data = self.current_parameters()
        with self.storage.on_device():
            own = data.copy()
            data[:] = self.average
        try:
            yield self.model
        finally:
            with self.storage.on_device():
                data[:] = own

    def current_parameters(self):
        """The model's flat parameters; raises ValueError if they are in another storage now."""
        if own_storage(self.model) is not self.storage:
            raise ValueError("the model's parameters have moved to another storage; call rebind() on its average")
        return self.storage.data

    def state_dict(self):
        """A copy of the number of updates and of the flat average."""
        return {"t": to_numpy(self.t).copy(), "average": to_numpy(self.average).copy()}

    def load_state_dict(self, state):
        """Restore what `state_dict` returned; raises ValueError if it doesn't fit."""
        require_fit(self, state, ["average"])
        self.t = count_on(self.storage, state["t"])
        with self.storage.on_device():
            self.average[:] = to_device(state["average"], self.storage.device)
