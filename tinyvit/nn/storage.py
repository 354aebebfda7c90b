"""One flat array for all parameters of a model, and one for all their gradients.

An optimizer, a clipping or an all-reduce then touches one array, however many layers there are.
"""

import threading
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from math import prod
from typing import NamedTuple

import numpy as np

from tinyvit.backend import current, device_of, library, products_in, to_device
from tinyvit.functional.cast import cast
from tinyvit.nn.precision import as_precision

ALIGNMENT = 256  # bytes; what a GPU reads in one go, and a multiple of every cache line

_named_gradients = ContextVar("tinyvit.gradients", default=None)
_at_work = ContextVar("tinyvit.at_work", default=None)


class Segment(NamedTuple):
    """A stretch of the flat arrays whose parameters are treated alike."""

    where: slice
    trainable: bool
    decay: bool
    lr_scale: float


class Storage:
    """The memory of a list of parameters: `data`, and `grad` once it is needed.

    Every parameter is a view that starts on a 256-byte boundary; the gaps between them hold zeros. Those with weight
    decay lie before those without, so that an optimizer has few stretches to walk.

    precision   what is computed in, a `Precision`; by default in the dtype
    """

    def __init__(self, parameters, dtype="float32", device="cpu", precision=None):
        self.parameters = sorted(parameters, key=lambda parameter: not parameter.decay)
        self.precision = as_precision(None, dtype, device) if precision is None else precision
        self.dtype, self.device = self.precision.dtype, device
        step = ALIGNMENT // self.dtype.itemsize
        size, self.offsets = 0, []
        for parameter in self.parameters:
            parameter.storage, parameter.offset = self, size
            self.offsets.append(size)
            size += -(-parameter.size // step) * step
        self.size = size
        self.data = self._zeros()
        self.grad = self._rounded = None
        self._more_gradients = []
        self._lock = threading.RLock()

    @property
    def compute_dtype(self):
        """The dtype of activations, and of the matrices that they are multiplied with."""
        return self.precision.compute

    def _zeros(self):
        xp, step = library(self.device), ALIGNMENT // self.dtype.itemsize
        with self.on_device():
            roomy = xp.zeros(self.size + step, self.dtype)
        address = roomy.__array_interface__["data"][0] if xp is np else roomy.data.ptr
        start = -address % ALIGNMENT // self.dtype.itemsize
        return roomy[start : start + self.size]

    # -- computing -------------------------------------------------------------------------------------------------

    def on_device(self):
        """Inside this, arrays are made and kernels started where the parameters are."""
        return current(self.device)

    @contextmanager
    def at_work(self):
        """What every call of the model runs in: on its device, with products in its precision, and with matrices that
        are rounded anew from the parameters if it computes in bfloat16 or float16.

        Whoever changes parameters inside this calls `round_matrices` before the next forward; a whole step has its own.
        """
        if self.is_at_work():
            yield
            return
        token = _at_work.set(self)
        try:
            with self.on_device(), products_in(self.precision.products):
                self.round_matrices()
                yield
        finally:
            _at_work.reset(token)

    def is_at_work(self):
        """Whether this is inside `at_work`, or needs none of it."""
        return self.device == "cpu" or _at_work.get() is self

    def round_matrices(self):
        """Bring the copy of the parameters in fewer bits, if there is one, up to date."""
        if self.precision.is_low:
            if self._rounded is None:
                self._rounded = library(self.device).empty(self.size, self.compute_dtype)
            cast(self.data, self.compute_dtype, out=self._rounded)

    def rounded(self):
        """All parameters in the compute dtype."""
        if not self.is_at_work():
            with self.on_device():
                self.round_matrices()
        return self._rounded if self.precision.is_low else self.data

    def relaid(self, flat, before):
        """A flat array that was laid out as another storage of the same parameters, as one of this one's."""
        with current(before.device):
            pieces = [flat[start : start + p.size] for start, p in zip(before.offsets, before.parameters)]
            pieces = [to_device(piece, self.device) for piece in pieces]
        new = self._zeros()
        with self.on_device():
            for start, piece in zip(self.offsets, pieces):
                new[start : start + piece.size] = piece
        return new

    # -- gradients -------------------------------------------------------------------------------------------------

    def new_gradients(self):
        """A zeroed array that gradients can be sent to; see `gradients_into`."""
        return self._zeros()

    def gradient_buffers(self, count):
        """The model's own gradients and `count` − 1 more arrays like it, kept for the next time."""
        self._own_gradients()
        while len(self._more_gradients) < count - 1:
            self._more_gradients.append(self._zeros())
        return [self.grad, *self._more_gradients[: count - 1]]

    def gradients(self):
        """Where this thread's gradients go: the array named by `gradients_into`, else the model's own."""
        named = _named_gradients.get()
        if named is not None and named[0] is self:
            return named[1]
        return self._own_gradients()

    def _own_gradients(self):
        with self._lock:
            if self.grad is None:
                self.grad = self._zeros()
        return self.grad

    def writing(self):
        """Hold this while adding to gradients: two threads that share the model's own buffer take turns."""
        named = _named_gradients.get()
        return nullcontext() if named is not None and named[0] is self else self._lock

    @contextmanager
    def gradients_into(self, buffer):
        """Inside this, gradients that this thread computes are added to `buffer`, not to the model's own."""
        if buffer.shape != (self.size,) or buffer.dtype != self.dtype:
            raise ValueError(
                f"expected a gradient buffer {self.dtype} {(self.size,)}, as new_gradients() makes it, "
                f"got {buffer.dtype} {buffer.shape}"
            )
        token = _named_gradients.set((self, buffer))
        try:
            yield buffer
        finally:
            _named_gradients.reset(token)

    def segments(self, leaving_out=()):
        """The longest stretches of equal (trainable, decay, learning-rate scale), in order, without some parameters."""
        found = []
        for parameter, following in zip(self.parameters, [*self.parameters[1:], None]):
            if parameter in leaving_out:
                continue
            stop = self.size if following is None else following.offset
            treatment = parameter.trainable, parameter.decay, parameter.lr_scale
            if found and found[-1].where.stop == parameter.offset and found[-1][1:] == treatment:
                found[-1] = Segment(slice(found[-1].where.start, stop), *treatment)
            else:
                found.append(Segment(slice(parameter.offset, stop), *treatment))
        return found

    def __getstate__(self):
        left_out = "_lock", "_more_gradients", "_rounded"
        return {name: value for name, value in vars(self).items() if name not in left_out}

    def __setstate__(self, state):
        vars(self).update(state, _more_gradients=[], _rounded=None, _lock=threading.RLock())
        aligned = self._zeros()  # what was copied or unpickled may start anywhere
        with self.on_device():
            aligned[:] = self.data
        self.data = aligned


class Variable:
    """An array that belongs to a model: a Parameter, which is learned, or a Buffer, which isn't.

    data    the master copy
    value   what layers read: the same array, but for matrices of a model that computes in bfloat16 or float16
    init    (generator, shape) -> initial values
    """

    def __init__(self, shape, init):
        self.shape = tuple(int(side) for side in shape)
        self.size = prod(self.shape)
        self.init = init
        self.name = "(unnamed)"

    @property
    def ndim(self):
        return len(self.shape)

    @property
    def data(self):
        return self.memory()

    @data.setter
    def data(self, value):
        self.assign(self.data, value)

    @property
    def value(self):
        return self.data

    def assign(self, view, value):
        """Copy `value` into `view`; raises ValueError if the shapes differ (nothing is broadcast)."""
        if np.shape(value) != view.shape:
            raise ValueError(f"{self.name}: expected {view.shape}, got {np.shape(value)}")
        device = device_of(view)
        with current(device):
            view[...] = to_device(value, device) if hasattr(value, "dtype") else value

    def memory(self):
        """The array; raises ValueError while there is none."""
        raise ValueError(
            f"{type(self).__name__.lower()} {self.name} {self.shape} is declared but has no memory; "
            "call materialize() on the model that it belongs to"
        )

    def __repr__(self):
        return f"{type(self).__name__}({self.name!r}, {self.shape})"


class Parameter(Variable):
    """A learned array: a view into its model's flat `Storage`.

    grad        its gradient: a view into the flat gradients, zero until a backward adds to it
    trainable   False freezes it: no gradient is computed, no optimizer touches it
    decay       whether weight decay applies: by default to whatever has two or more dimensions
    lr_scale    what the optimizer multiplies the learning rate with
    parts       how many matrices of equal shape are stacked in it, row upon row: 3 in queries, keys and values
    is_matrix   whether activations are multiplied with it: by default if it has two or more dimensions, and never if
                it was made with decay=False, as tokens and positions are, which are added
    """

    def __init__(self, shape, init, decay=None, lr_scale=1.0):
        super().__init__(shape, init)
        self.decay = self.ndim >= 2 if decay is None else decay
        self.is_matrix = self.ndim >= 2 and decay is not False
        self.trainable = True
        self.lr_scale = lr_scale
        self.parts = 1
        self.storage = None
        self.offset = None

    def memory(self):
        return super().memory() if self.storage is None else self.view(self.storage.data)

    @property
    def value(self):
        if self.storage is None or not (self.is_matrix and self.storage.precision.is_low):
            return self.data
        return self.view(self.storage.rounded())

    @property
    def grad(self):
        self.memory()  # raises if there is none
        return self.view(self.storage.gradients())

    @grad.setter
    def grad(self, value):
        self.assign(self.grad, value)

    def view(self, flat):
        """Its stretch of a flat array that is laid out as its storage, in its own shape."""
        return flat[self.offset : self.offset + self.size].reshape(self.shape)


class Buffer(Variable):
    """State that is kept with the model but not learned, such as fixed positions. It is in `state_dict`.

    A forward never writes to it: it returns the update in its cache, and the training step commits it.
    """

    def __init__(self, shape, init):
        super().__init__(shape, init)
        self._data = None

    def allocate(self, dtype, device):
        with current(device):
            self._data = library(device).zeros(self.shape, dtype)

    def memory(self):
        return super().memory() if self._data is None else self._data
