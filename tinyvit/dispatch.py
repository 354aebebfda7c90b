"""The dispatcher: it stands between a caller and the implementations of an operation.

`functional/` holds the reference implementations. `kernels/` may register something faster for an array library and
dtype; the dispatcher takes the best that the level in force allows (see `levels`). No implementation gets an array that
was not checked here: operands are floating-point arrays of one library, a gradient has the shape of the result that it
belongs to, and so does every entry of `into=`, which the dispatcher gives to every backward.
"""

import functools
import inspect
from pathlib import Path

import numpy as np

from tinyvit import levels
from tinyvit.backend import device_of, to_device

LOW_PRECISION = ("bfloat16", "float16")  # dtypes that only kernels compute in
OPERANDS = {                             # arguments of these names are arrays of numbers, in every operation
    "x", "weight", "bias", "branch", "q", "k", "v", "logits", "token", "positions", "along_x", "along_y", "g", "m",
    "average",
}  # fmt: skip


def kind(x):
    """What kernels are registered under: the array library's name and the dtype's, as ("numpy", "float32")."""
    return kind_of(type(x), getattr(x, "dtype", None))


@functools.cache
def kind_of(array_type, dtype):
    library = array_type.__module__.partition(".")[0]
    return "cupy" if library == "cupy" else "numpy", str(dtype)


class Kernels:
    """The kernels of one function, by level and by kind of array."""

    def __init__(self, reference):
        self.reference = reference
        self.by_level = {level: {} for level in levels.LEVELS}
        self.looked_through = {
            level: [(lower, self.by_level[lower]) for lower in below] for level, below in levels.BELOW.items()
        }
        self.plain = {}  # (level, dtype) -> what runs for NumPy's arrays of floating-point numbers, once it was found

    def register(self, kind, kernel, level="numpy"):
        """Add a kernel, with the function's own signature, for arrays of that kind."""
        self.by_level[level][kind] = kernel
        self.plain = {}

    def find(self, x):
        """The best kernel for `x` that the level in force allows, or None."""
        plain, here, asked = self.plain, kind(x), levels.level()
        kernel = None
        for level, kernels in self.looked_through[asked]:
            levels.load(level, here)
            if here in kernels:
                kernel = kernels[here]
                break
        if type(x) is np.ndarray and x.dtype in PLAIN:
            plain[asked, x.dtype] = kernel or self.reference
        return kernel


PLAIN = frozenset(map(np.dtype, ("float32", "float64", "complex128")))


def operation(reference):
    """Make a forward `(x, ...) -> (result, cache)` an operation that kernels can be registered for.

    It has the name, signature and docstring of the function. `op.reference` is the reference implementation;
    `op.register(kind, kernel, level)` adds a kernel, with the same signature, for arrays of that kind; `op.which(x)`
    says what would run. Lists and arrays of ints or bools are taken as floating-point numbers, NumPy's scalars as
    Python's. Raises ValueError for operands that are no numbers or belong to another library than the first, and for
    arrays in bfloat16 and float16 without a kernel, unless `op.moves_numbers_only` was set: a reference that computes
    nothing, like its backward's, is right for any dtype.
    """
    kernels, name, operands_of = Kernels(reference), reference.__name__, {}
    names = list(inspect.signature(reference).parameters)
    operands = {i: argument for i, argument in enumerate(names) if i == 0 or argument in OPERANDS}

    def plain_operands(types):
        """The places of the operands after the first, if all are NumPy's arrays and no number is NumPy's; else None."""
        first, *others = [types[i] for i in operands if i < len(types)]
        if first is not np.ndarray or any(other not in (np.ndarray, type(None)) for other in others):
            return None
        if any(issubclass(other, np.generic) for other in types):
            return None
        return [i for i in operands if 0 < i < len(types) and types[i] is np.ndarray]

    @functools.wraps(reference)
    def forward(*args, **kwargs):
        if args and not kwargs:
            types = tuple(map(type, args))
            if types not in operands_of:
                operands_of[types] = plain_operands(types)
            others = operands_of[types]
            if others is not None:  # nothing is to be converted, unless the dtypes differ or nothing was looked for yet
                dtype = args[0].dtype
                implementation = kernels.plain.get((levels.level(), dtype))
                for i in others:
                    if args[i].dtype is not dtype:
                        break
                else:
                    if implementation is not None:
                        return implementation(*args)
        return convert_and_run(args, kwargs)

    def convert_and_run(args, kwargs):
        # A NumPy number, such as 1 / np.sqrt(d), would turn a float32 result into float64.
        args = [arg.item() if isinstance(arg, np.generic) else arg for arg in args]
        kwargs = {key: arg.item() if isinstance(arg, np.generic) else arg for key, arg in kwargs.items()}
        x = args[0] if args else kwargs.get(names[0])
        for i, argument in operands.items():
            other = args[i] if i < len(args) else kwargs.get(argument)
            if i == 0 or other is not None:
                other = as_operand(name, argument, other, x, forward.moves_numbers_only)
                if i < len(args):
                    args[i] = other
                else:
                    kwargs[argument] = other
                x = other if i == 0 else x
        kernel = kernels.find(x)
        if kernel is None and not forward.moves_numbers_only:
            check_dtype(name, x)
        return (kernel or reference)(*args, **kwargs)

    def which(x, *args, **kwargs):
        """What would run for these arguments, and the file and line where it is written."""
        return location(kernels.find(x) or reference)

    forward.moves_numbers_only = False
    forward.reference = reference
    forward.kernels = kernels
    forward.register = kernels.register
    forward.which = which
    return forward


def as_operand(name, argument, x, first, moves_numbers_only):
    """`x` as an array of floating-point numbers of the library of `first`; ints and bools become numbers."""
    if not hasattr(x, "dtype"):
        if not isinstance(x, (list, tuple, int, float, complex)):
            raise ValueError(f"{name}: expected {argument} as an array, got {type(x).__name__}")
        real = getattr(getattr(first, "dtype", None), "kind", "") == "f"
        dtype = first.dtype if real and isinstance(x, (int, float)) else None  # a number changes no array's dtype
        try:
            x = np.asarray(x, dtype)
        except ValueError as error:
            raise ValueError(f"{name}: expected {argument} as an array, got a list of unequal lengths") from error
        if hasattr(first, "dtype"):
            x = to_device(x, device_of(first))
    if x.dtype.kind not in "biufc" and str(x.dtype) not in LOW_PRECISION:
        raise ValueError(f"{name}: expected {argument} as an array of numbers, got {x.dtype}")
    if hasattr(first, "dtype") and kind(first)[0] != kind(x)[0]:
        raise ValueError(
            f"{name}: expected {argument} as an array of {kind(first)[0]}, like the first argument, "
            f"got one of {kind(x)[0]}"
        )
    if x.dtype.kind not in "biu":
        return x
    if moves_numbers_only or argument == "bias":  # attention refuses a mask that is given as its bias
        return x
    dtype = first.dtype if first is not x and getattr(getattr(first, "dtype", None), "kind", "") == "f" else "float64"
    return x.astype(dtype)


def check_dtype(name, x):
    """Raise ValueError for an array in bfloat16 or float16, in which the reference would add up too few digits."""
    library, dtype = kind(x)
    if dtype in LOW_PRECISION:
        where = {"numpy": "of NumPy on the CPU", "cupy": "of CuPy on the GPU"}[library]
        inside = " inside tinyvit.reference()" if levels.level() == "reference" else ""
        raise ValueError(
            f"{name}: no kernel for {dtype} arrays {where}{inside}, and the reference implementation needs at least "
            'float32; compute in float32 (x.astype("float32"), or precision="float32")'
        )


def backward_of(forward, result=None, parameters=None):
    """Make a backward `(dy, cache) -> gradients` the other half of `forward`, with kernels and `into=`.

    result      cache -> the shape of the forward's result, which `dy` must have; a list of them for a tuple of arrays.
                It reads fields that the caches of all kernels answer to without computing anything
    parameters  cache -> the shapes of the last gradients, which are those of parameters; None: all are those of inputs
    into        of the backward: one entry for each parameter. An array: the gradient is added to it, and it is returned
                in the gradient's place. False: the gradient is not wanted, and None is returned in its place. None: a
                new array, as without `into`

    `op_backward.register(kind, kernel, level)` adds a kernel that understands the reference's cache;
    `op_backward.register_cache(type, kernel)` one that goes with a kernel's own cache type. A kernel takes (dy, cache),
    and where there are parameters (dy, cache, into) with an entry for each of them, checked. It may add to the arrays
    in `into` and return them; what else it returns is added to them here. `op_backward.which(dy, cache)` says what
    would run. Raises ValueError for a `dy` or an `into` that doesn't fit.
    """

    def decorate(reference):
        kernels, own_caches, name = Kernels(reference), {}, reference.__name__

        @functools.wraps(reference)
        def backward(dy, cache, into=None):
            if isinstance(dy, np.generic):
                dy = dy.item()  # a Python number, which never changes the dtype of what it is multiplied with
            if result is not None:
                try:
                    expected = result(cache)
                except AttributeError as error:
                    raise ValueError(f"{name}: expected a cache of its forward, got {type(cache).__name__}") from error
                if not fits(dy, expected):
                    dy = as_gradient(name, dy, expected, forward.moves_numbers_only)
            kernel = own_caches.get(type(cache)) or kernels.find(dy)
            if kernel is None and not forward.moves_numbers_only:
                check_dtype(name, dy)
            if parameters is None:
                check_into(name, into or (), ())
                return (kernel or reference)(dy, cache)
            shapes = parameters(cache)
            if into is None:
                return reference(dy, cache) if kernel is None else kernel(dy, cache, (None,) * len(shapes))
            check_into(name, into, shapes)
            gradients = reference(dy, cache) if kernel is None else kernel(dy, cache, into)
            gradients = gradients if isinstance(gradients, tuple) else (gradients,)
            first = len(gradients) - len(shapes)
            gradients = gradients[:first] + tuple(map(add_to, into, gradients[first:]))
            return gradients if len(gradients) > 1 else gradients[0]

        def which(dy, cache, into=None):
            """What would run for these arguments, and the file and line where it is written."""
            return location(own_caches.get(type(cache)) or kernels.find(dy) or reference)

        backward.reference = reference
        backward.kernels = kernels
        backward.register = kernels.register
        backward.register_cache = own_caches.__setitem__
        backward.which = which
        backward.result, backward.parameters = result, parameters
        forward.backward = backward
        return backward

    return decorate


def fits(dy, expected):
    """Whether `dy` is a NumPy array of floating-point numbers of the expected shape, or a tuple of such: the usual."""
    if type(dy) is np.ndarray:
        return dy.shape == expected and dy.dtype.kind == "f"
    if not (isinstance(dy, tuple) and type(expected) is list and len(dy) >= len(expected)):
        return False
    return all(fits(array, shape) for array, shape in zip(dy, expected))


def as_gradient(name, dy, expected, moves_numbers_only):
    """`dy` as floating-point numbers; raises ValueError unless it has the shape (or shapes) of the result."""
    if isinstance(expected, list):
        dy = tuple(dy) if getattr(dy, "shape", ())[:1] == (len(expected),) else dy
        if not isinstance(dy, tuple) or len(dy) < len(expected):
            got = f"{len(dy)} entries" if isinstance(dy, tuple) else type(dy).__name__
            raise ValueError(f"{name}: expected dy as a tuple of {len(expected)} arrays, got {got}")
        checked = [as_gradient(name, *pair, moves_numbers_only) for pair in zip(dy, expected)]
        return dy if all(new is old for new, old in zip(checked, dy)) else tuple(checked)
    if isinstance(dy, (int, float, complex)) and expected == ():
        return dy
    if not hasattr(dy, "dtype") or not hasattr(dy, "shape"):
        raise ValueError(f"{name}: expected dy as an array {expected}, got {type(dy).__name__}")
    if dy.shape != expected:
        raise ValueError(f"{name}: expected dy {expected}, the shape of the result, got {dy.shape}")
    if dy.dtype.kind in "fc" or str(dy.dtype) in LOW_PRECISION:
        return dy
    if dy.dtype.kind not in "biu":
        raise ValueError(f"{name}: expected dy as an array of numbers, got {dy.dtype}")
    return dy if moves_numbers_only else dy.astype("float64")


def check_into(name, into, shapes):
    """Raise ValueError unless `into` has an entry for each parameter, each one an array of its shape, None or False."""
    if len(into) != len(shapes):
        raise ValueError(f"{name}: into= has {len(into)} entries for {len(shapes)} parameter gradients")
    for goal, shape in zip(into, shapes):
        if goal is None or goal is False or (getattr(goal, "shape", None) == shape and goal.dtype.kind == "f"):
            continue
        if getattr(goal, "shape", None) != tuple(shape):
            got = getattr(goal, "shape", type(goal).__name__)
            raise ValueError(f"{name}: into=: expected an array {tuple(shape)} to add to, got {got}")
        if goal.dtype.kind not in "fcV":
            raise ValueError(f"{name}: into=: expected an array of floating-point numbers, got {goal.dtype}")


def add_to(goal, gradient):
    """Put a parameter's gradient where an entry of `into` says; see `backward_of`."""
    if goal is False:
        return None
    if goal is None or goal is gradient:
        return gradient
    goal += gradient
    return goal


def location(implementation):
    """The name of a function and where it is written: "layernorm tinyvit/functional/layernorm.py:17"."""
    source = inspect.unwrap(implementation)
    path = Path(source.__code__.co_filename)
    package = Path(__file__).parents[1]
    path = path.relative_to(package) if path.is_relative_to(package) else path
    return f"{source.__name__} {path.as_posix()}:{source.__code__.co_firstlineno}"
