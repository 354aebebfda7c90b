"""What every layer and model has in common."""

import functools
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from tinyvit.backend import Key, as_dtype, library, to_device, to_numpy
from tinyvit.nn.storage import Buffer, Parameter, Storage

_gradient_observer = ContextVar("tinyvit.observer", default=None)


@dataclass(frozen=True)
class Context:
    """All that a forward depends on besides data and parameters. No context means inference.

    training      whether dropout and stochastic depth are at work
    key           their random stream; the training step sets its step and its first sample
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
    token = _gradient_observer.set(observer)
    try:
        yield observer
    finally:
        _gradient_observer.reset(token)


class Module:
    """A layer or model: parameters and wiring, never activations.

    `y, cache = module(x, ctx)` computes; `dx = module.backward(dy, cache)` adds to the parameters' gradients and
    returns the gradient of the input. A subclass sets its parameters and sub-modules as attributes (lists of
    modules, too) and writes `forward` and `backward`. Since nothing about a call stays in the module, it can be
    called twice, shared, or used by two threads at once.

    The names of parameters are the paths of attributes, `blocks.3.attn.qkv.weight`. What a `transparent` module
    holds is named as if its parent held it, so that a model can be made of parts and still have timm's names; its own
    path stands in parentheses, `(encode)`.
    """

    transparent = False
    path = ""

    def forward(self, x, ctx=None):
        raise TypeError(f"{type(self).__name__} has no forward")

    def backward(self, dy, cache):
        raise TypeError(f"{type(self).__name__} has no backward")

    def __call__(self, *inputs, **named):
        """forward(x, ctx=None), the result reported to the context's observer, if there is one."""
        output, cache = self.forward(*inputs, **named)
        ctx = named.get("ctx", inputs[-1] if inputs else None)
        if isinstance(ctx, Context):
            if ctx.observer is not None:
                ctx.observer.value(self.path, output)
            if not ctx.keep_caches:
                cache = None
        return output, cache

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        if "backward" in vars(cls):
            cls.backward = _observed(cls.backward)

    # -- the tree ----------------------------------------------------------------------------------------------

    def children(self):
        """(name, module) of every direct sub-module, in the order of definition."""
        for name, value in vars(self).items():
            if isinstance(value, Module):
                yield name, value
            elif isinstance(value, (list, tuple)):
                for i, item in enumerate(value):
                    if isinstance(item, Module):
                        yield f"{name}.{i}", item

    def named_modules(self):
        """(path, module) of every module in the tree, this one first, each once."""
        for path, _, module in self._walk():
            yield path, module

    def _walk(self, path="", prefix="", seen=None):
        """(path, what the names of its parameters begin with, module) of every module in the tree."""
        seen = set() if seen is None else seen
        if id(self) not in seen:
            seen.add(id(self))
            yield path, prefix, self
            for name, child in self.children():
                below = prefix + name
                if child.transparent:
                    yield from child._walk(f"({below})", prefix, seen)
                else:
                    yield from child._walk(below, below + ".", seen)

    def _named_variables(self, kind=(Parameter, Buffer)):
        seen = set()
        for _, prefix, module in self._walk():
            for attribute, value in vars(module).items():
                if isinstance(value, kind) and id(value) not in seen:
                    seen.add(id(value))
                    yield prefix + attribute, value

    def named_parameters(self):
        """(name, Parameter) of every parameter in the tree, each once."""
        yield from self._named_variables(Parameter)

    def parameters(self):
        """Every Parameter in the tree, each once."""
        for _, parameter in self.named_parameters():
            yield parameter

    def named_buffers(self):
        """(name, Buffer) of every buffer in the tree, each once."""
        yield from self._named_variables(Buffer)

    def num_parameters(self, trainable_only=False):
        """How many numbers are learned."""
        return sum(p.size for p in self.parameters() if p.trainable or not trainable_only)

    # -- memory ------------------------------------------------------------------------------------------------

    def materialize(self, seed=0, dtype="float32", device="cpu"):
        """Give this tree its memory and initial values, which depend on `seed` and the parameters' names alone.

        To be called on the outermost module; ViT does it itself. The device "meta" only gives every part its name,
        and no memory. Returns the module.
        """
        self._name_parts()
        if device == "meta":
            return self
        self._allocate(as_dtype(dtype), device)
        for name, variable in self._named_variables():
            # Drawn in float64 on the CPU whatever the model's dtype and device: one seed, one model.
            variable.data = to_device(variable.init(Key(seed, path=name).generator(), variable.shape), device)
        return self

    def _name_parts(self):
        for path, module in self.named_modules():
            module.path = path
        for name, variable in self._named_variables():
            variable.name = name

    def _allocate(self, dtype, device):
        library(device)  # raises before anything has changed if there is no such device
        Storage(self.parameters(), dtype, device)
        for _, buffer in self.named_buffers():
            buffer.allocate(dtype, device)

    def to(self, dtype=None, device=None):
        """Move the model to another dtype or device, in place; gradients are dropped. Returns the module."""
        state = self.state_dict()
        self._allocate(as_dtype(dtype or self.dtype), device or self.device)
        self.load_state_dict(state)
        return self

    @property
    def dtype(self):
        """The dtype of the parameters."""
        return self.storage.dtype

    @property
    def device(self):
        """Where the parameters are: "cpu" or "cuda"."""
        return self.storage.device

    @property
    def storage(self):
        """The flat arrays that hold the parameters and their gradients."""
        parameter = next(self.parameters(), None)
        if parameter is None:
            raise ValueError(f"{type(self).__name__} has no parameters")
        parameter.memory()  # raises if there is none
        return parameter.storage

    # -- gradients ---------------------------------------------------------------------------------------------

    @contextmanager
    def gradients(self):
        """Where to add the gradients of this module's own parameters, in the order of definition: `into=`.

        A frozen parameter's entry is False: its gradient is not computed.
        """
        own = [value for value in vars(self).values() if isinstance(value, Parameter)]
        with own[0].storage.writing():
            yield tuple(p.grad if p.trainable else False for p in own)

    def zero_grad(self):
        """Set all gradients to zero."""
        self.storage.gradients()[:] = 0

    def new_gradients(self):
        """A second, zeroed gradient buffer, for `gradients_into`."""
        return self.storage.new_gradients()

    def gradients_into(self, buffer):
        """`with model.gradients_into(model.new_gradients()):` sends this thread's gradients to a buffer."""
        return self.storage.gradients_into(buffer)

    def freeze(self, pattern="*"):
        """Freeze the parameters whose names match a pattern such as "blocks.*"; returns their names."""
        return self._set_trainable(pattern, False)

    def unfreeze(self, pattern="*"):
        """Make the parameters whose names match a pattern trainable again; returns their names."""
        return self._set_trainable(pattern, True)

    def _set_trainable(self, pattern, trainable):
        matching = {name: p for name, p in self.named_parameters() if fnmatchcase(name, pattern)}
        if not matching:
            names = ", ".join(name for name, _ in self.named_parameters())
            raise ValueError(f"no parameter matches {pattern!r}; there are: {names}")
        for parameter in matching.values():
            parameter.trainable = trainable
        return list(matching)

    # -- weights in and out ------------------------------------------------------------------------------------

    def state_dict(self):
        """A copy of every parameter and buffer, by name."""
        return {name: variable.data.copy() for name, variable in self._named_variables()}

    def load_state_dict(self, state, strict=True):
        """Copy arrays by name into the parameters and buffers.

        Raises one ValueError that lists every missing, unexpected and misshapen name, before anything has
        changed. With strict=False, missing and unexpected names are returned instead, misshapen ones still raise.
        """
        own = dict(self._named_variables())
        missing = [name for name in own if name not in state]
        unexpected = [name for name in state if name not in own]
        misshapen = [
            f"{name} (expected {own[name].shape}, got {np.shape(value)})"
            for name, value in state.items()
            if name in own and np.shape(value) != own[name].shape
        ]
        problems = {"misshapen": misshapen}
        if strict:
            problems = {"missing": missing, "unexpected": unexpected, **problems}
        if any(problems.values()):
            found = "; ".join(f"{what}: {', '.join(names)}" for what, names in problems.items() if names)
            raise ValueError(f"the state doesn't fit {type(self).__name__}: {found}")
        arrays = {name: np.asarray(to_numpy(value)) for name, value in state.items() if name in own}
        kinds = "fc" if self.dtype.kind == "c" else "f"
        other = [f"{name} ({array.dtype})" for name, array in arrays.items() if array.dtype.kind not in kinds]
        if other:
            raise ValueError(f"expected floating-point numbers for {self.dtype} parameters, got {', '.join(other)}")
        for name, array in arrays.items():
            own[name].data = to_device(array, self.device)
        return missing, unexpected


def _observed(backward):
    """A backward that also tells the observer, if there is one, what came in and what went out."""

    @functools.wraps(backward)
    def wrapped(self, dy, cache):
        dx = backward(self, dy, cache)
        observer = _gradient_observer.get()
        if observer is not None:
            observer.gradient(self.path, dy, dx)
        return dx

    return wrapped
