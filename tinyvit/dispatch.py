"""The dispatcher: it stands between a caller and the implementations of an operation.

`functional/` holds the reference implementations. `kernels/` may register something faster for an array library and
dtype; the dispatcher takes the best that the current level allows (see `levels`). No implementation gets an array that
was not checked here: operands are floating-point arrays of one library, a gradient has the shape of the result that it
belongs to, and so does every entry of `into=`, which the dispatcher gives to every backward.

A call whose arguments have the types and dtypes of an earlier one goes straight to the implementation that was found
then: only shapes are left to check.
"""

import functools
import inspect
from operator import is_
from pathlib import Path

import numpy as np

from tinyvit import levels
from tinyvit.arrays import is_of_cupy
from tinyvit.backend import device_of, to_device

LOW_PRECISION = ("bfloat16", "float16")  # dtypes that only kernels compute in
OPERANDS = {                             # arguments of these names are arrays of numbers, in every operation
    "x", "weight", "bias", "branch", "q", "k", "v", "logits", "token", "positions", "along_x", "along_y", "g", "m",
    "average", "mean", "variance", "texts", "logit_scale", "offset", "gain", "gate",
}  # fmt: skip
NUMBERS = {"eps", "rate", "label_smoothing", "t", "lr", "weight_decay", "share", "where"}


def kind(x):
    """The array library and dtype of `x`, which its kernels are registered for: ("numpy", "float32")."""
    return kind_of(type(x), getattr(x, "dtype", None))


@functools.cache
def kind_of(array_type, dtype):
    return "cupy" if is_of_cupy(array_type) else "numpy", str(dtype)


class Kernels:
    """The reference implementation of one function, if there is one, and its kernels by level and by kind of array."""

    def __init__(self, reference=None):
        self.reference = reference
        self.by_level, self.by_cache = {level: {} for level in levels.LEVELS}, {}
        self.known = {}  # (level, types and dtypes of arguments) -> what was found for them, if none was converted

    def register(self, kind, kernel, level="numpy"):
        """Add a kernel, with the function's own signature, for arrays of that kind."""
        self.by_level[level][kind] = kernel
        self.known = {}

    def register_cache(self, cache_type, kernel):
        """Add the kernel of a backward that goes with a cache of this type."""
        self.by_cache[cache_type] = kernel
        self.known = {}

    def find(self, x, cache=None):
        """The kernel that goes with a cache of its own, else the best implementation for `x` at the current level."""
        if type(cache) in self.by_cache:
            return self.by_cache[type(cache)]
        here = kind(x)
        for level in levels.BELOW[levels.level()]:
            levels.load(level, here)
            if here in self.by_level[level]:
                return self.by_level[level][here]
        return self.reference

    def which(self, x, cache=None):
        """What would run, and where it is written: "layernorm tinyvit/functional/layernorm.py:17"."""
        source = inspect.unwrap(self.find(x, cache))
        path, package = Path(source.__code__.co_filename), Path(__file__).parents[1]
        path = path.relative_to(package) if path.is_relative_to(package) else path
        return f"{source.__name__} {path.as_posix()}:{source.__code__.co_firstlineno}"


def operation(reference):
    """Make a forward `(x, ...) -> (result, cache)` an operation that kernels can be registered for.

    It has the name, signature and docstring of the function. `op.reference` is the reference implementation;
    `op.register(kind, kernel, level)` adds a kernel, with the same signature, for arrays of that kind; `op.which(x)`
    says what would run. Lists and arrays of ints or bools are taken as floating-point numbers, NumPy's scalars as
    Python's. Raises ValueError for operands that are not arrays of numbers or belong to another library than the first,
    and for arrays in bfloat16 and float16 without a kernel, unless `op.moves_numbers_only` was set: a reference that
    computes nothing, like its backward's, is right for any dtype. `op.in_place` names the arguments that it updates.
    """
    kernels, name, signature = Kernels(reference), reference.__name__, inspect.signature(reference)
    names = list(signature.parameters)
    operands = [i for i, argument in enumerate(names) if argument in OPERANDS or i == 0]

    @functools.wraps(reference)
    def forward(*args, **kwargs):
        if args and not kwargs:
            dtype = getattr(args[0], "dtype", None)
            found = kernels.known.get((levels.level(), dtype, *map(type, args)))
            if found is not None:
                implementation, others, scalars = found
                for i, expected in others:
                    if args[i].dtype is not expected:
                        break
                else:
                    if not scalars or not any(args[i].ndim for i in scalars):
                        return implementation(*args)
        return convert_and_run(args, kwargs)

    def convert_and_run(args, kwargs):
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{name}: {error}") from None
        given, first = bound.arguments, None
        for argument, value in given.items():
            if argument in NUMBERS and getattr(value, "ndim", 0) > 0:
                raise ValueError(f"{name}: expected {argument} as a number, got an array {value.shape}")
            if isinstance(value, np.generic) or (argument in NUMBERS and type(value) is np.ndarray):
                given[argument] = value.item()  # such as 1 / np.sqrt(d): it would turn a float32 result into float64
        for argument in (names[i] for i in operands):
            value = given.get(argument)
            if value is None and signature.parameters[argument].default is inspect.Parameter.empty:
                raise ValueError(f"{name}: expected {argument} as an array, got NoneType")
            if first is None or value is not None:
                x = given[argument] = as_operand(name, argument, value, first, forward.moves_numbers_only)
                first = x if first is None else first
                if argument in forward.in_place and x is not value:
                    got = getattr(value, "dtype", type(value).__name__)
                    raise ValueError(f"{name}: expected {argument} as an array of floating-point numbers, got {got}")
        implementation = kernels.find(first)
        if implementation is reference and not forward.moves_numbers_only:
            check_dtype(name, first)
        if not kwargs and all(map(is_, args, bound.args)):
            others = [(i, args[i].dtype) for i in operands[1:] if i < len(args) and args[i] is not None]
            scalars = [i for i, value in enumerate(args) if names[i] in NUMBERS and hasattr(value, "ndim")]  # on a GPU
            kernels.known[levels.level(), first.dtype, *map(type, args)] = implementation, others, scalars
        return implementation(*bound.args, **bound.kwargs)

    forward.moves_numbers_only, forward.in_place = False, ()
    forward.reference, forward.register, forward.which = reference, kernels.register, kernels.which
    return forward


def as_operand(name, argument, x, first, moves_numbers_only):
    """`x` as an array of floating-point numbers, of the library of the first operand (None if it is the first)."""
    real = first is not None and first.dtype.kind == "f"
    if isinstance(x, (list, tuple, int, float, complex)):
        dtype = first.dtype if real and isinstance(x, (int, float)) else None  # a number changes no array's dtype
        x = np.asarray(x, dtype)
        x = x if first is None else to_device(x, device_of(first))
    check_array(name, argument, x)
    if first is not None and kind(first)[0] != kind(x)[0]:
        raise ValueError(
            f"{name}: expected {argument} as an array of {kind(first)[0]}, like the first argument, "
            f"got one of {kind(x)[0]}"
        )
    if x.dtype.kind not in "biu" or moves_numbers_only or argument == "bias":  # attention refuses a mask as its bias
        return x
    return x.astype(first.dtype if real else "float64")


def check_array(name, argument, x):
    """Raise ValueError for anything but an array of numbers; a mask would be ignored, a matrix multiplies otherwise."""
    if not hasattr(x, "dtype") or type(x).__name__ in ("MaskedArray", "matrix") or not (
        isinstance(x, np.ndarray) or kind(x)[0] == "cupy"
    ):
        raise ValueError(f"{name}: expected {argument} as an array, got {type(x).__name__}")
    if x.dtype.kind not in "biufc" and str(x.dtype) not in LOW_PRECISION:
        raise ValueError(f"{name}: expected {argument} as an array of numbers, got {x.dtype}")


def check_dtype(name, x):
    """Raise ValueError for an array in bfloat16 or float16, in which the reference would add up too few digits."""
    library, dtype = kind(x)
    if dtype in LOW_PRECISION:
        raise ValueError(
            f"{name}: no kernel for {dtype} arrays of {library} at the level {levels.level()!r}, and the reference "
            'implementation needs at least float32; compute in float32 (x.astype("float32"), or precision="float32")'
        )


def backward_of(forward, result=None, parameters=None):
    """Make a backward `(dy, cache) -> gradients` the other half of `forward`, with kernels and `into=`.

    result      cache -> the shape of the forward's result, which `dy` must have; a list of them for a tuple of arrays.
                It reads fields that the caches of all kernels answer to without computing anything
    parameters  cache -> the shapes of the last gradients, which are those of parameters; None: all are those of inputs
    into        of the backward: one entry for each parameter. An array: the gradient is added to it, and it is returned
                in the gradient's place. False: the gradient is not wanted, and None is returned in its place. None: a
                new array, as without `into`
    inputs      of the backward of an operation with parameters: whether the gradients of its inputs are wanted; if not,
                None is returned in their places

    `op_backward.register(kind, kernel, level)` adds a kernel that understands the reference's cache;
    `op_backward.register_cache(type, kernel)` one that goes with a kernel's own cache type. A kernel takes (dy, cache),
    and where there are parameters (dy, cache, into) with an entry for each of them, checked. It may add to the arrays
    in `into` and return them; what else it returns is added to them here. Where `op_backward.can_skip_inputs` was set,
    it takes `inputs` as well, and needn't compute what isn't wanted. `op_backward.which(dy, cache)` says what
    would run. Raises ValueError for a `dy` or an `into` that doesn't fit.
    """

    def decorate(reference):
        kernels, name = Kernels(reference), reference.__name__

        @functools.wraps(reference)
        def backward(dy, cache, into=None, inputs=True):
            expected, implementation = shape_of_result(cache), None
            if getattr(dy, "shape", False) == expected or fits(dy, expected):
                implementation = kernels.known.get((levels.level(), type(cache), *kinds(dy)))
            if implementation is None:
                dy, implementation = convert_and_find(dy, cache, expected)
            if parameters is None:
                if into:
                    check_into(name, into, ())
                return implementation(dy, cache)
            shapes = parameters(cache)
            if into is None:
                into = (None,) * len(shapes)
            else:
                check_into(name, into, shapes)
            if implementation is reference:
                gradients = reference(dy, cache)
            elif inputs or not backward.can_skip_inputs:
                gradients = implementation(dy, cache, into)
            else:
                gradients = implementation(dy, cache, into, inputs=False)
            gradients = list(gradients) if isinstance(gradients, tuple) else [gradients]
            if not inputs:
                gradients[: len(gradients) - len(into)] = [None] * (len(gradients) - len(into))
            for i, goal in enumerate(into, len(gradients) - len(into)):
                if goal is False:
                    gradients[i] = None
                elif goal is not None and goal is not gradients[i]:
                    goal += gradients[i]
                    gradients[i] = goal
            return tuple(gradients) if len(gradients) > 1 else gradients[0]

        def shape_of_result(cache):
            try:
                return None if result is None else result(cache)
            except (AttributeError, IndexError, TypeError, ValueError) as error:
                raise ValueError(f"{name}: expected a cache of its forward, got {type(cache).__name__}") from error

        def convert_and_find(dy, cache, expected):
            given, dy = dy, dy.item() if isinstance(dy, np.generic) else dy  # Python's numbers change no array's dtype
            if expected is not None:
                dy = as_gradient(name, dy, expected, forward.moves_numbers_only)
            implementation = kernels.find(dy, cache)
            if not forward.moves_numbers_only:
                for part in dy if isinstance(dy, tuple) else (dy,):
                    if implementation is reference or kind(part)[0] == "numpy":
                        check_dtype(name, part)
            if dy is given:
                kernels.known[levels.level(), type(cache), *kinds(dy)] = implementation
            return dy, implementation

        backward.can_skip_inputs = False
        backward.reference, backward.register, backward.which = reference, kernels.register, kernels.which
        backward.register_cache = kernels.register_cache
        backward.result, backward.parameters = result, parameters
        forward.backward = backward
        return backward

    return decorate


def fits(dy, expected):
    """Whether `dy` is a tuple of the shapes in the list `expected`."""
    if not (isinstance(expected, list) and isinstance(dy, tuple) and len(dy) >= len(expected)):
        return False
    return all(getattr(part, "shape", False) == shape for part, shape in zip(dy, expected))


def kinds(dy):
    """The types and dtypes of a gradient, or of all gradients of a tuple."""
    if not isinstance(dy, tuple):
        return type(dy), getattr(dy, "dtype", None)
    return tuple([(type(part), getattr(part, "dtype", None)) for part in dy])


def as_gradient(name, dy, expected, moves_numbers_only):
    """`dy` as floating-point numbers; raises ValueError unless it has the shape (or shapes) of the result."""
    if isinstance(expected, list):
        dy = tuple(dy) if getattr(dy, "shape", ())[:1] == (len(expected),) else dy
        if not isinstance(dy, tuple) or len(dy) < len(expected):
            got = f"{len(dy)} entries" if isinstance(dy, tuple) else type(dy).__name__
            raise ValueError(f"{name}: expected dy as a tuple of {len(expected)} arrays, got {got}")
        checked = [as_gradient(name, *pair, moves_numbers_only) for pair in zip(dy, expected)]
        return dy if all(map(is_, checked, dy)) else tuple(checked)
    if isinstance(dy, (int, float, complex)) and expected == ():
        return dy
    check_array(name, "dy", dy)
    if dy.shape != expected:
        raise ValueError(f"{name}: expected dy {expected}, the shape of the result, got {dy.shape}")
    return dy.astype("float64") if dy.dtype.kind in "biu" and not moves_numbers_only else dy


def check_into(name, into, shapes):
    """Raise ValueError unless `into` has an entry for each parameter, each one an array of its shape, None or False."""
    if len(into) != len(shapes):
        raise ValueError(f"{name}: into= has {len(into)} entries for {len(shapes)} parameter gradients")
    for goal, shape in zip(into, shapes):
        if goal is None or goal is False:
            continue
        if getattr(goal, "shape", None) != shape:
            got = getattr(goal, "shape", type(goal).__name__)
            raise ValueError(f"{name}: into=: expected an array {shape} to add to, got {got}")
        if goal.dtype.kind not in "fc" and str(goal.dtype) not in LOW_PRECISION:
            raise ValueError(f"{name}: into=: expected an array of floating-point numbers, got {goal.dtype}")
        if type(goal) is np.ndarray and not goal.flags.writeable:
            raise ValueError(f"{name}: into=: expected an array to add to, got a read-only one")
