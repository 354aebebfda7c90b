"""One flat array for all parameters of a model, and one for all their gradients.

An optimizer, a clipping or an all-reduce then touches one array, however many layers there are.
"""

from typing import NamedTuple

import numpy as np

from tinyvit.backend import current, library, to_device
from tinyvit.nn.compute import Compute
from tinyvit.nn.gradients import GradientBuffers
from tinyvit.nn.precision import as_precision

ALIGNMENT = 256  # bytes; what a GPU reads at once, and a multiple of every cache line


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
    compute     the device and precision to compute in, a `Compute`
    latest      of the class: another object after every change of a module's attributes or a parameter's storage
    """

    latest = object()

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
        Storage.latest = object()
        self.size = size
        self.data = self.zeros()
        self.grads, self.compute = GradientBuffers(self), Compute(self)

    def zeros(self):
        """A zeroed flat array laid out as this storage."""
        xp, step = library(self.device), ALIGNMENT // self.dtype.itemsize
        with self.on_device():
            longer = xp.zeros(self.size + step, self.dtype)
        address = longer.__array_interface__["data"][0] if xp is np else longer.data.ptr
        start = -address % ALIGNMENT // self.dtype.itemsize
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
        """`with storage.compute_scope():` computes on its device and in its precision; see `Compute.scope`."""
        return self.compute.scope()

    def on_device(self):
        """Inside this, arrays are made and kernels started where the parameters are."""
        return current(self.device)

    def rearranged(self, flat, before, new=None):
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

    def __setstate__(self, state):
        vars(self).update(state)
        aligned = self.zeros()  # what was copied or unpickled may start anywhere
        with self.on_device():
            aligned[:] = self.data
        self.data = aligned
