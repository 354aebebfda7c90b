"""The arrays of a model: parameters, which are learned, and buffers, which aren't."""

from math import prod

import numpy as np

from tinyvit.backend import current, device_of, library, to_device


class Variable:
    """An array that belongs to a model: a Parameter or a Buffer.

    data    the master copy
    value   what layers read: the same array, except for matrices of a model that computes in bfloat16 or float16
    init    (generator, shape) -> initial values
    """

    def __init__(self, shape, init):
        if not (isinstance(shape, (tuple, list)) and callable(init)):
            raise TypeError(
                f"{type(self).__name__}: expected a shape such as (3, 4) and a function of `nn.init`, such as "
                f"init.zeros, got {type(shape).__name__} and {type(init).__name__}"
            )
        self.shape = tuple(int(side) for side in shape)
        self.size = prod(self.shape)
        self.init = init
        self.name = "(unnamed)"

    @property
    def ndim(self):
        return len(self.shape)

    @property
    def data(self):
        array = self.memory()
        if array is None:
            self.check_memory()
        return array

    @data.setter
    def data(self, value):
        self.assign(self.data, value)

    @property
    def value(self):
        return self.data

    def assign(self, view, value):
        """Copy numbers into `view`; raises ValueError for another shape (nothing is broadcast) and complex numbers."""
        if value is None or np.shape(value) != view.shape:
            raise ValueError(f"{self.name}: expected {view.shape}, got {None if value is None else np.shape(value)}")
        kind = getattr(value, "dtype", view.dtype).kind
        if kind == "c" != view.dtype.kind:
            raise ValueError(f"{self.name}: expected real numbers, got {value.dtype}; take their .real")
        if kind in "OSUMm":
            raise ValueError(f"{self.name}: expected numbers, got {value.dtype}")
        device = device_of(view)
        with current(device):
            view[...] = to_device(value, device) if hasattr(value, "dtype") else value

    def memory(self):
        """The array, or None while there is none."""

    def release(self):
        """Forget the array, as before it had one."""

    def check_memory(self):
        """Raise ValueError while there is no array."""
        if self.memory() is None:
            raise ValueError(
                f"{type(self).__name__.lower()} {self.name} {self.shape} is declared but has no memory; call "
                "materialize() on the module that it belongs to, and to() on a model that this module was added to"
            )

    def __array__(self, *args, **kwargs):
        raise TypeError(f"{self.name} is a {type(self).__name__}; its array is .data")

    def __repr__(self):
        array, frozen = self.memory(), "" if getattr(self, "trainable", True) else ", frozen"
        kept = "no memory" if array is None else array.dtype
        return f"{type(self).__name__}({self.name!r}, {self.shape}, {kept}{frozen})"


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

    @property
    def requires_grad(self):
        """PyTorch's name of `trainable`."""
        return self.trainable

    @requires_grad.setter
    def requires_grad(self, value):
        self.trainable = value

    def memory(self):
        return None if self.storage is None else self.view(self.storage.data)

    def release(self):
        self.storage = self.offset = None

    @property
    def value(self):
        if self.storage is None or not (self.is_matrix and self.storage.precision.is_low):
            return self.data
        return self.view(self.storage.matrices())

    @property
    def grad(self):
        if self.storage is None:
            self.check_memory()
        return self.view(self.storage.gradients())

    @grad.setter
    def grad(self, value):
        self.assign(self.grad, value)

    def view(self, flat):
        """Its part of a flat array that is laid out as its storage, in its own shape."""
        views = self.storage.views(flat)
        view = views.get(self)
        if view is None:
            view = views[self] = flat[self.offset : self.offset + self.size].reshape(self.shape)
        return view


class Buffer(Variable):
    """State that is kept with the model but not learned: fixed positions, running statistics. It is in `state_dict`.

    A forward never writes to it: it puts a `BufferUpdate` into its cache, and the training step commits it once.
    """

    def __init__(self, shape, init):
        super().__init__(shape, init)
        self._data = None

    def allocate(self, dtype, device):
        with current(device):
            self._data = library(device).zeros(self.shape, dtype)

    def memory(self):
        return self._data

    def release(self):
        self._data = None
