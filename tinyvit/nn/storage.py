"""The memory of a model: one flat array for all parameters, and one for all their gradients.

An optimizer, a clipping or an all-reduce then touches one array, however many layers there are.
"""

import threading
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from typing import NamedTuple

import numpy as np

from tinyvit.backend import current, library, scope, set_scope, to_device
from tinyvit.functional.cast import cast
from tinyvit.nn.precision import as_precision

ALIGNMENT_BYTES = 256  # what a GPU reads at once, and a multiple of every cache line

NOTHING = nullcontext()

_destination = ContextVar("tinyvit.gradients", default=None)  # (GradientBuffers, array, layer) that `into` has named


class Segment(NamedTuple):
    """A part of the flat arrays whose parameters are treated alike."""

    where: slice
    trainable: bool
    decay: bool
    lr_scale: float


class Storage:
    """The memory of a list of parameters: the flat array `data`.

    Every parameter is a view that starts on a 256-byte boundary; the gaps between them hold zeros. Those with weight
    decay lie before those without, so that an optimizer has few segments to walk.

    precision   what is computed in, a `Precision`; by default in the dtype
    grads       the flat gradients, a `GradientBuffers`
    rounded     all parameters in a compute dtype that isn't theirs, or None as long as nobody has needed them
    walk        the last `Walk` through the model, or None
    """

    def __init__(self, parameters, dtype="float32", device="cpu", precision=None):
        self.parameters = sorted(parameters, key=lambda parameter: not parameter.decay)
        self.precision = as_precision(None, dtype, device) if precision is None else precision
        self.dtype, self.device = self.precision.dtype, device
        step = ALIGNMENT_BYTES // self.dtype.itemsize
        size, self.offsets = 0, []
        for parameter in self.parameters:
            parameter.storage, parameter.offset = self, size
            self.offsets.append(size)
            size += -(-parameter.size // step) * step
        self.size = size
        self.data = self.zeros()
        self.grads, self.rounded = GradientBuffers(self), None
        self.made, self.segmented, self.walk = {}, (None, None), None

    def zeros(self):
        """A zeroed flat array laid out as this storage."""
        xp, step = library(self.device), ALIGNMENT_BYTES // self.dtype.itemsize
        with self.on_device():
            longer = xp.zeros(self.size + step, self.dtype)
        address = longer.__array_interface__["data"][0] if xp is np else longer.data.ptr
        start = -address % ALIGNMENT_BYTES // self.dtype.itemsize
        return longer[start : start + self.size]

    @property
    def compute_dtype(self):
        """The dtype of activations, and of the matrices that they are multiplied with."""
        return self.precision.compute

    @property
    def grad(self):
        """The model's own flat gradients, or None if no backward has needed them yet."""
        return self.grads.own

    def gradients(self):
        """The flat gradients that this thread adds to."""
        return self.grads.current()

    def compute_scope(self):
        """`with storage.compute_scope():` computes on its device and in its precision, as every call of the model does.

        Inside itself it does nothing, and nor does it on a CPU, which has one device and no other precision. Parameters
        are rounded where it begins: a training step, which changes them, has its own scope.
        """
        return NOTHING if self.device == "cpu" or scope().owner is self else self._enter_scope()

    @contextmanager
    def _enter_scope(self):
        with current(self.device), set_scope(products=self.precision.products, owner=self):
            self.round()
            yield

    def round(self):
        """Round all parameters to the compute dtype, if that is another than theirs."""
        if self.precision.is_low:
            if self.rounded is None:
                self.rounded = library(self.device).empty(self.size, self.compute_dtype)
            cast(self.data, self.compute_dtype, out=self.rounded)

    def matrices(self):
        """All parameters as a flat array in a compute dtype that isn't theirs."""
        if scope().owner is not self:
            with current(self.device):
                self.round()
        return self.rounded

    def on_device(self):
        """Inside this, arrays are made and kernels started where the parameters are."""
        return current(self.device)

    def views(self, flat):
        """The views of `flat` that were made so far, parameter -> view; a step reads some hundred of them.

        They are kept as long as the storage keeps the array itself. Any other array has none.
        """
        array, views = self.made.get(id(flat), (None, None))
        if array is flat:  # held here, so that no other array can have its id
            return views
        own = self.data, self.rounded, self.grads.own, *self.grads.kept
        if not any(flat is array for array in own):
            return {}
        _, views = self.made[id(flat)] = flat, {}
        return views

    def __repr__(self):
        return f"Storage({len(self.parameters)} parameters, {self.size:,} numbers, {self.dtype} on {self.device})"

    def rearrange(self, flat, before, new=None):
        """`flat`, which is laid out as the storage `before`, laid out as this one.

        What only this one has is taken from the array `new`, zeros by default, which is written to.
        """
        new = self.zeros() if new is None else new
        places = dict(zip(before.parameters, before.offsets))
        for parameter, start in zip(self.parameters, self.offsets):
            if parameter in places:
                with current(before.device):
                    piece = flat[places[parameter] : places[parameter] + parameter.size]
                    piece = to_device(piece, self.device)
                with self.on_device():
                    new[start : start + parameter.size] = piece
        return new

    def segments(self, leaving_out=()):
        """The longest segments of equal (trainable, decay, learning-rate scale), in order, without some parameters."""
        treatments = [(p.trainable, p.decay, p.lr_scale, p in leaving_out) for p in self.parameters]
        before, found = self.segmented
        if treatments != before:
            found = self.join_segments(treatments)
            self.segmented = treatments, found
        return found

    def join_segments(self, treatments):
        """Segments of parameters that follow one another and are treated alike, less those that are left out."""
        found = []
        for parameter, stop, (*treatment, left_out) in zip(
            self.parameters, [*self.offsets[1:], self.size], treatments
        ):
            if left_out:
                continue
            if found and found[-1].where.stop == parameter.offset and found[-1][1:] == tuple(treatment):
                found[-1] = Segment(slice(found[-1].where.start, stop), *treatment)
            else:
                found.append(Segment(slice(parameter.offset, stop), *treatment))
        return found

    def __getstate__(self):
        return vars(self) | {"made": {}, "walk": None, "rounded": None}  # a copied view would be an array of its own

    def __setstate__(self, state):
        vars(self).update(state)
        aligned = self.zeros()  # what was copied or unpickled may start anywhere
        with self.on_device():
            aligned[:] = self.data
        self.data = aligned


class GradientBuffers:
    """The flat gradients of a storage: the model's own, made when first needed, and others for threads.

    own        the model's own, or None
    """

    def __init__(self, storage):
        self.storage, self.own, self.kept, self.lock = storage, None, [], threading.RLock()

    def take(self, count):
        """The model's own array and `count` − 1 others, which are kept for the next time."""
        while len(self.kept) < count - 1:
            self.kept.append(self.storage.zeros())
        return [self._own(), *self.kept[: count - 1]]

    def current(self):
        """The array that this thread's gradients are added to: the one that `into` names, else the model's own."""
        owner, array, _ = _destination.get() or (None, None, None)
        return array if owner is self else self._own()

    def _own(self):
        with self.lock:
            if self.own is None:
                self.own = self.storage.zeros()
        return self.own

    def adding(self):
        """Hold this while adding: two threads that share the model's own array take turns."""
        owner, *_ = _destination.get() or (None,)
        return NOTHING if owner is self else self.lock

    def wants_input_of(self, layer):
        """Whether this thread's backward of a layer is to give the gradient of its input."""
        destination = _destination.get()
        return destination is None or destination[2] is not layer

    @contextmanager
    def into(self, array, first=None):
        """Inside this, the gradients that this thread computes are added to `array`, not to the model's own.

        first   a layer with whose parameters the backward may end: the gradient of its input is None
        """
        shape, dtype = (self.storage.size,), self.storage.dtype
        if array.shape != shape or array.dtype != dtype:
            raise ValueError(
                f"expected a gradient buffer {dtype} {shape}, as new_gradients() makes it, "
                f"got {array.dtype} {array.shape}"
            )
        token = _destination.set((self, array, first))
        try:
            yield array
        finally:
            _destination.reset(token)

    def __getstate__(self):
        return {"storage": self.storage, "own": self.own}

    def __setstate__(self, state):
        vars(self).update(state, kept=[], lock=threading.RLock())


class GradientContext:
    """The context manager of `Module.gradients`: a step enters some hundred, which generators would make slower."""

    def __init__(self, parameters):
        self.parameters, self.grads = parameters, parameters[0].storage.grads

    def __enter__(self):
        flat = self.grads.current()
        into = tuple([p.view(flat) if p.trainable else False for p in self.parameters])
        self.turn = self.grads.adding()
        self.turn.__enter__()  # last: what fails in here has no exit
        return into

    def __exit__(self, kind, *error):
        self.turn.__exit__(kind, *error)
