"""The base class of all layers and models."""

from contextlib import nullcontext
from fnmatch import fnmatchcase
from functools import partial

import numpy as np

from tinyvit.backend import as_device, to_numpy
from tinyvit.keys import Key
from tinyvit.nn.buffers import buffer_updates
from tinyvit.nn.context import Context
from tinyvit.nn.foreign_names import MODULE, NO_MODE, ForeignNames
from tinyvit.nn.precision import as_precision
from tinyvit.nn.storage import GradientContext, Storage
from tinyvit.nn.tree import Walk, check_found, check_replacement, own, tree
from tinyvit.nn.variables import Buffer, Parameter, Variable
from tinyvit.text import list_names


class Module(ForeignNames):
    """A layer or model: parameters and wiring, never activations.

    `y, cache = module(x, ctx)` computes; `dx = module.backward(dy, cache)` adds to the parameters' gradients and
    returns the gradient of the input. A subclass sets its parameters and sub-modules as attributes (lists of
    modules, too) and writes `forward` and `backward`. Since nothing about a call stays in the module, it can be
    called twice, shared, or used by two threads at once.

    Parameters are named by the path of attributes, `blocks.3.attn.qkv.weight`. The contents of a `transparent` module
    are named as if its parent held them, so that a model made of parts still has timm's names; its own path is in
    parentheses, `(encode)`.
    """

    foreign = MODULE
    transparent = False
    mixes_samples = False  # whether, in training, what it gives for a sample depends on the others of the batch
    frozen = False  # whether a training step leaves its buffers as they are
    image_part = None  # the name of the sub-module that reads the images, if one does
    path = ""
    _scope = nullcontext  # of a module on a GPU: its storage's `compute_scope`

    def forward(self, x, ctx=None):
        raise TypeError(f"{type(self).__name__} has no forward")

    def backward(self, dy, cache):
        raise TypeError(f"{type(self).__name__} has no backward")

    def __setattr__(self, name, value):
        if name == "requires_grad":  # which would freeze nothing
            getattr(self, name)
        check_replacement(self, name, value)
        super().__setattr__(name, value)

    def __call__(self, *inputs, **named):
        """forward(x, ctx=None), the result reported to the observer of the context among the arguments, if any."""
        try:
            with self._scope():
                result = self.forward(*inputs, **named)
        except TypeError as error:
            if "training" in named:
                raise TypeError(f"training is no argument: {NO_MODE}") from error
            raise
        if not isinstance(result, tuple) or len(result) != 2:
            raise TypeError(f"{type(self).__name__}.forward: expected (output, cache), got {type(result).__name__}")
        output, cache = result
        for value in (*inputs, *named.values()):
            if isinstance(value, Context):
                return output, self.report(output, cache, value)
        return output, cache

    def report(self, output, cache, ctx):
        """Report the output to the context's observer; returns the cache if the context keeps caches."""
        if ctx.observer is not None:
            ctx.observer.value(self.path, output)
        if ctx.keep_caches:
            return cache
        return tuple(buffer_updates(cache)) or None if ctx.training else None

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
        return ((path, module) for path, _, module in self._walk())

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

    def _named_variables(self, kind=Variable):
        seen = set()
        for _, prefix, module in self._walk():
            for attribute, value in vars(module).items():
                if isinstance(value, kind) and id(value) not in seen:
                    seen.add(id(value))
                    yield prefix + attribute, value

    def named_parameters(self):
        """(name, Parameter) of every parameter in the tree, each once."""
        return self._named_variables(Parameter)

    def parameters(self):
        """Every Parameter in the tree, each once."""
        return (parameter for _, parameter in self.named_parameters())

    def named_buffers(self):
        """(name, Buffer) of every buffer in the tree, each once."""
        return self._named_variables(Buffer)

    def __repr__(self):
        inside = f"{self.num_parameters():,} parameters" if [*self.children()] else own(self, (int, str, float)).strip()
        return f"{type(self).__name__}({inside})"

    def __str__(self):
        return tree(self)

    def num_parameters(self, trainable_only=False):
        """The number of learned numbers."""
        return sum(p.size for p in self.parameters() if p.trainable or not trainable_only)

    # -- memory ------------------------------------------------------------------------------------------------

    def materialize(self, seed=0, dtype="float32", device="cpu", precision=None):
        """Give this tree its memory and initial values, which depend on `seed` and the parameters' names alone.

        Call it on the outermost module; ViT does it itself. The device "meta" gives every part its name, but no memory.
        Returns the module.

        dtype       of the parameters: "float32", "float64" or "complex128"
        device      "cpu", "cuda" (the GPU that is current), "cuda:1", … or "auto"
        precision   to compute in: "float32", "float64", or on a GPU "tf32", "bfloat16" or "float16", which keep the
                    parameters in float32; by default that of `dtype`. See `nn.precision`
        """
        if device == "meta":
            self._name_parts()
            return self
        self._allocate(dtype, device, precision)
        for name, variable in self._named_variables():
            # Drawn in float64 on the CPU whatever the model's dtype and device: one seed, one model.
            variable.data = variable.init(Key(seed, path=name).generator(), variable.shape)
        return self

    def _name_parts(self):
        for path, module in self.named_modules():
            check_found(module)
            module.path = path
        for name, variable in self._named_variables():
            variable.name = name

    def _allocate(self, dtype, device, precision):
        device = as_device(device)  # raises before anything has changed if there is no such device
        precision = as_precision(precision, dtype, device)
        self._name_parts()
        storage = Storage(self.parameters(), precision.dtype, device, precision)
        for _, buffer in self.named_buffers():
            buffer.allocate(precision.dtype, device)
        for _, module in self.named_modules():
            if "_scope" in vars(module):
                del module._scope, module.backward
            if device != "cpu":
                module._scope, module.backward = storage.compute_scope, partial(backward_in_scope, module)

    def to(self, dtype=None, device=None, precision=None):
        """Move the model to another dtype, device or precision, in place; gradients are dropped. Returns the module.

        Without arguments it brings parts that were made apart, or copied, into one storage. An optimizer or a moving
        average made before goes on after its `rebind()`.
        """
        state = self.state_dict()
        if dtype is None:
            dtype, precision = ("float32", precision) if precision else (self.dtype, self.precision)
        self._allocate(dtype, device or self.device, precision)
        self.load_state_dict(state)
        return self

    @property
    def dtype(self):
        """The dtype of the parameters."""
        return self.storage.dtype

    @property
    def precision(self):
        """The name of the precision that is computed in: see `nn.precision`."""
        return self.storage.precision.name

    @property
    def device(self):
        """The device of the parameters: "cpu" or "cuda:0"."""
        return self.storage.device

    @property
    def storage(self):
        """The flat arrays that hold the parameters and their gradients."""
        parameter = next(self.parameters(), None)
        if parameter is None:
            raise ValueError(f"{type(self).__name__} has no parameters")
        parameter.check_memory()
        return parameter.storage

    def is_in(self, storage):
        """Whether all parameters lie in this storage. Every step asks, so this takes microseconds."""
        return all([parameter.storage is storage for parameter in self.walk().parameters])

    def walk(self):
        """The `Walk` through this tree as it is now; kept in the storage for the next time."""
        storage = self.storage
        walk = storage.walk
        if walk is None or walk.root is not self or not walk.is_current():
            walk = storage.walk = Walk(self)
        return walk

    @property
    def image_layer(self):
        """The layer that reads the images, whose input has no gradient in a training step; None if none does."""
        return getattr(self, self.image_part).image_layer if self.image_part else None

    # -- gradients ---------------------------------------------------------------------------------------------

    def gradients(self):
        """`with self.gradients() as into:` names where to add the gradients of this module's own parameters.

        `into` has an entry for each of them in the order of definition. A frozen parameter's entry is False: its
        gradient is not computed.
        """
        return GradientContext([value for value in vars(self).values() if isinstance(value, Parameter)])

    def zero_grad(self):
        """Set all gradients to zero."""
        with self.storage.on_device():
            self.storage.gradients()[:] = 0

    def new_gradients(self):
        """A second, zeroed gradient buffer, for `gradients_into`."""
        return self.storage.zeros()

    def gradients_into(self, buffer):
        """`with model.gradients_into(model.new_gradients()):` sends this thread's gradients to a buffer."""
        return self.storage.grads.into(buffer)

    def freeze(self, pattern="*", trainable=False):
        """Freeze the parameters of a part, such as "head" or "blocks.3", those whose names match a pattern such as
        "blocks.*.attn.*", or those of a list of parts and patterns; returns their names."""
        matching, parts = {}, {path.strip("()"): part for path, part in self.named_modules()}
        for one in [pattern] if isinstance(pattern, str) else pattern:
            inside = {*parts[one].parameters()} if one in parts else set()
            found = {name: p for name, p in self.named_parameters()
                     if p in inside or fnmatchcase(name, one) or fnmatchcase(name, f"{one}.*")}  # fmt: skip
            if not found:
                names = ", ".join(name for name, _ in self.named_parameters())
                raise ValueError(f"no parameter matches {one!r}; there are: {names}")
            matching |= found
        for parameter in matching.values():
            parameter.trainable = trainable
        return list(matching)

    def unfreeze(self, pattern="*"):
        """Make the parameters that `freeze` would freeze trainable again; returns their names."""
        return self.freeze(pattern, trainable=True)

    # -- weights in and out ------------------------------------------------------------------------------------

    def state_dict(self):
        """A copy of every parameter and buffer, by name."""
        with self.storage.on_device():
            return {name: variable.data.copy() for name, variable in self._named_variables()}

    def check_state(self, state, strict=True):
        """Compare arrays by name with the parameters and buffers; returns these, missing and unexpected names.

        Raises what `load_state_dict` does.
        """
        if not hasattr(state, "items"):
            raise TypeError(f"expected arrays by name, as state_dict() gives them, got {type(state).__name__}")
        own = dict(self._named_variables())
        missing, unexpected = [name for name in own if name not in state], [name for name in state if name not in own]
        misshapen = [
            f"{name} (expected {own[name].shape}, got {np.shape(value)})"
            for name, value in state.items() if name in own and np.shape(value) != own[name].shape
        ]  # fmt: skip
        problems = ({"missing": missing, "unexpected": unexpected} if strict else {}) | {"misshapen": misshapen}
        found = "; ".join(f"{what}: {list_names(names)}" for what, names in problems.items() if names)
        if found:
            raise ValueError(f"the state doesn't fit {type(self).__name__}: {found}")
        return own, missing, unexpected

    def load_state_dict(self, state, strict=True):
        """Copy arrays by name into the parameters and buffers; returns the missing and the unexpected names.

        Raises one ValueError that names what is missing, unexpected and misshapen, before anything has changed; with
        strict=False only for what is misshapen.
        """
        own, missing, unexpected = self.check_state(state, strict)
        arrays = {name: np.asarray(to_numpy(value)) for name, value in state.items() if name in own}
        kinds = "fc" if self.dtype.kind == "c" else "f"
        other = [f"{name} ({array.dtype})" for name, array in arrays.items() if array.dtype.kind not in kinds]
        if other:
            raise ValueError(f"expected floating-point numbers for {self.dtype} parameters, got {', '.join(other)}")
        for name, array in arrays.items():
            own[name].data = array
        return missing, unexpected


def backward_in_scope(module, dy, cache):
    """`module.backward(dy, cache)` in its compute scope. On a GPU it stands in the place of every module's backward."""
    with module._scope():
        return type(module).backward(module, dy, cache)
