"""Adam and its relatives, in place, in one pass over the flat arrays of a model."""

import numpy as np

from tinyvit.arrays import array_module
from tinyvit.backend import to_device, to_numpy
from tinyvit.functional.adam import adam_step
from tinyvit.nn.foreign_names import ForeignNames
from tinyvit.optim.loss_scale import LossScale
from tinyvit.validation import INFINITY, require

CHUNK_ENTRIES = 1 << 15  # entries; on a CPU all arrays of a chunk stay in the cache while it is updated


class FlatState(ForeignNames):
    """Arrays laid out as a model's flat parameters (`state`, named by `slots`), and a count of updates.

    t    the number of updates: an int, or on a GPU a scalar there
    """

    slots = ()

    def __init__(self, model):
        self.model, self.storage = model, own_storage(model)
        self.t = count_on(self.storage, 0)
        self.reset()

    def __repr__(self):
        kinds, counts = (int, float, tuple), ("next_step", "t")
        shown = [f"{k}={v}" for k, v in vars(self).items() if isinstance(v, kinds) and k not in counts]
        settings, model = ", ".join([*shown, f"t={int(to_numpy(self.t))}"]), self.model
        return f"{type(self).__name__}({settings}) of {type(model).__name__}, {model.num_parameters():,} parameters"

    def initial(self):
        """The first values of one of the arrays: zeros."""
        return array_module(self.storage.data).zeros_like(self.storage.data)

    def reset(self):
        """Make the arrays anew."""
        with self.storage.on_device():
            self.state = [self.initial() for _ in self.slots]

    def require_bound(self):
        """Raise ValueError if the model's parameters are in another storage now."""
        if own_storage(self.model) is not self.storage:
            raise ValueError(f"the model has moved to another storage; call rebind() on its {type(self).__name__}")

    def rebind(self):
        """Follow the model after its `to`: keep the state of the parameters that it still has.

        The state of new parameters is `initial`. Returns itself.
        """
        before, arrays, self.storage = self.storage, self.state, own_storage(self.model)
        if self.storage is not before:
            self.reset()
            for array, new in zip(arrays, self.state):
                self.storage.rearrange(array, before, new)
            self.t = count_on(self.storage, self.t)
        return self

    def state_dict(self):
        """A copy of the count and of the flat arrays, by name."""
        return {"t": to_numpy(self.t).copy()} | {name: to_numpy(a).copy() for name, a in zip(self.slots, self.state)}

    def load_state_dict(self, state):
        """Restore what `state_dict` returned; raises ValueError if it doesn't fit."""
        expected = {"t": (), **{name: (self.storage.size,) for name in self.slots}}
        got = {name: np.shape(value) for name, value in state.items()}
        require(got == expected, f"the state doesn't fit {type(self).__name__}: expected {expected}", got)
        self.t = count_on(self.storage, state["t"])
        with self.storage.on_device():
            for name, array in zip(self.slots, self.state):
                array[:] = to_device(state[name], self.storage.device)


class Optimizer(FlatState):
    """Updates a model's parameters in place, one segment of equal treatment after the other.

    A subclass names the flat arrays that it keeps (`slots`) and writes
    `update(theta, g, *slots, lr, weight_decay)` for a segment of parameters θ with gradient g.
    Frozen parameters don't change; weight decay applies only where `decay` is set.

    lr           the learning rate; a schedule sets it before each step
    t            the number of steps taken: an int, or on a GPU a scalar there
    next_step    t as an int, for `Key`; on a GPU, for which nothing waits, steps that were left out count, too
    loss_scale   the `LossScale` of a model that computes in float16, else None
    """

    foreign = {  # noqa: RUF012 (only read)
        "zero_grad": "model.zero_grad() sets gradients to zero, and train_step starts with that",
        "param_groups": "the rate is optimizer.lr, and a parameter's own factor parameter.lr_scale",
    }
    reads_where = False  # whether `update` reads `where` itself; if not, a GPU keeps copies of what it changes
    where = True     # in `update`: a boolean on a GPU that says whether the step is taken

    def __init__(self, model, lr, weight_decay=0.0):
        require(0 <= lr < INFINITY, "expected a learning rate of at least 0", lr)
        require(0 <= weight_decay < INFINITY, "expected a weight decay of at least 0", weight_decay)
        super().__init__(model)
        self.lr, self.weight_decay, self.next_step = lr, weight_decay, 0

    def reset(self):
        super().reset()
        with self.storage.on_device():
            in_float16 = self.storage.compute_dtype == "float16"
            self.loss_scale = LossScale(array_module(self.storage.data)) if in_float16 else None

    def step(self, where=True):
        """Take one step along the model's gradients.

        where   False changes nothing; a boolean on a GPU decides there, and nothing waits for it
        """
        self.require_bound()
        with self.storage.on_device():
            arrays = [] if self.reads_where else [self.storage.data, *self.state]
            if array_module(where) is np:
                if not where:
                    return
                where, arrays = True, []
            before = [array.copy() for array in arrays]
            self.next_step += 1
            self.t, self.where = self.t + where, where
            self.update_all()
            self.where = True
            for array, old in zip(arrays, before):
                array_module(array).copyto(array, old, where=~where)

    def update_all(self):
        """Update every segment that is trained."""
        data, grad = self.storage.data, self.storage.gradients()
        for where, trainable, decay, lr_scale in self.segments():
            if not trainable:
                continue
            chunk = CHUNK_ENTRIES if array_module(data) is np else where.stop - where.start
            for start in range(where.start, where.stop, chunk):
                part = slice(start, min(start + chunk, where.stop))
                state = (array[part] for array in self.state)
                self.update(data[part], grad[part], *state, self.lr * lr_scale, self.weight_decay if decay else 0.0)

    def segments(self):
        """The segments that `step` updates."""
        return self.storage.segments()

    def state_dict(self):
        """A copy of the step count, the flat arrays and the loss scale, by name."""
        scale = {} if self.loss_scale is None else {name: getattr(self.loss_scale, name) for name in SCALE_STATE}
        return super().state_dict() | {name: to_numpy(value).copy() for name, value in scale.items()}

    def load_state_dict(self, state):
        """Restore what `state_dict` returned; raises ValueError if it doesn't fit.

        Only float16 has a loss scale: other precisions ignore it, and float16 starts a new one if there is none.
        """
        super().load_state_dict({name: value for name, value in state.items() if name not in SCALE_STATE})
        self.next_step = int(state["t"])
        if self.loss_scale is not None:
            with self.storage.on_device():
                for name in state.keys() & set(SCALE_STATE):
                    getattr(self.loss_scale, name)[...] = to_device(state[name], self.storage.device)


SCALE_STATE = ("scale", "good")  # a `LossScale` in a state


def own_storage(model):
    """The storage that holds all parameters of a model; raises ValueError if there are several.

    A part that was made apart or copied has its own, which no optimizer of the model would reach.
    """
    if not hasattr(model, "is_in"):
        raise TypeError(f"expected a model, as in AdamW(model, lr=1e-3), got {type(model).__name__}")
    storage = model.storage
    if not model.is_in(storage):
        (first, _), *others = model.named_parameters()
        other = next(name for name, parameter in others if parameter.storage is not storage)
        raise ValueError(f"{first} and {other} lie in different storages; call to() on the model, then rebind()")
    return storage


def count_on(storage, count):
    """A count as an int, or on a GPU as a scalar there, so that a skipped step can leave it unchanged."""
    count = int(to_numpy(count))
    if storage.device == "cpu":
        return count
    with storage.on_device():
        return array_module(storage.data).zeros((), "int64") + count


class SGD(Optimizer):
    """θ ← θ − lr b with the momentum b ← μ b + g, and g including weight decay · θ.

    With `nesterov`, θ ← θ − lr (g + μ b). Sutskever et al. 2013, in the form of PyTorch.
    """

    slots = ("b",)

    def __init__(self, model, lr, momentum=0.0, nesterov=False, weight_decay=0.0):
        super().__init__(model, lr, weight_decay)
        require(0 <= momentum < 1, "expected a momentum of at least 0 and below 1", momentum)
        self.momentum, self.nesterov = momentum, nesterov

    def update(self, theta, g, b, lr, weight_decay):
        g = g + weight_decay * theta
        b *= self.momentum
        b += g
        theta -= lr * (g + self.momentum * b if self.nesterov else b)


class Adagrad(Optimizer):
    """s ← s + g², θ ← θ − lr g / (√s + ε), with g including weight decay · θ. Duchi et al. 2011."""

    slots = ("s",)

    def __init__(self, model, lr=0.01, eps=1e-10, weight_decay=0.0):
        super().__init__(model, lr, weight_decay)
        require(np.float32(eps) > 0, "expected an eps above 0 in float32", eps)
        self.eps = eps

    def update(self, theta, g, s, lr, weight_decay):
        g = g + weight_decay * theta
        s += g * g
        theta -= lr * g / (s**0.5 + self.eps)


class Adam(Optimizer):
    """Adam: m̂ and v̂ are the bias-corrected means of past gradients and of their squares,

        θ ← θ − lr m̂ / (√v̂ + ε)

    Kingma & Ba 2015, algorithm 1; see `functional.adam`.
    """

    slots = ("m", "v")
    reads_where = True

    def __init__(self, model, lr=1e-3, betas=(0.9, 0.999), eps=1e-8):
        super().__init__(model, lr)
        require(np.float32(eps) > 0, "expected an eps above 0 in float32", eps)
        proper = len(betas) == 2 and all(0 <= beta < 1 for beta in betas)
        require(proper, "expected two betas of at least 0 and below 1", betas)
        self.betas, self.eps = betas, eps

    def update(self, theta, g, m, v, lr, weight_decay):
        adam_step(theta, g, m, v, self.t, lr, self.betas, self.eps, weight_decay, self.where)


class AdamW(Adam):
    """Adam with weight decay outside the moments: θ ← θ − lr · weight_decay · θ, then Adam's step.

    Loshchilov & Hutter 2019, algorithm 2, in PyTorch's form: the decay is multiplied by the learning rate, which
    carries the schedule. It applies to parameters with `decay`: matrices, but no norm, bias, token or position.
    """

    def __init__(self, model, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01):
        super().__init__(model, lr, betas, eps)
        require(0 <= weight_decay < INFINITY, "expected a weight decay of at least 0", weight_decay)
        self.weight_decay = weight_decay
