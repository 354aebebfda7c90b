"""What stands between a caller and the plain text of an operation.

The text in this folder is the definition. `kernels/` may register something faster for one array library and
dtype; the dispatcher picks the best that the level in force allows (see `levels`). It also gives every backward its
`into=`, which the plain text never mentions.
"""

import functools
import inspect

import numpy as np

from tinyvit import levels

LOW_PRECISION = ("bfloat16", "float16")  # dtypes that only kernels compute in


def kind(x):
    """What kernels are registered under: the array library's name and the dtype's, as ("numpy", "float32")."""
    return kind_of(type(x), getattr(x, "dtype", None))


@functools.cache
def kind_of(array_type, dtype):
    library = array_type.__module__.partition(".")[0]
    return "cupy" if library == "cupy" else "numpy", str(dtype)


class Kernels:
    """The kernels of one function, by level and by kind of array."""

    def __init__(self):
        self.by_level = {level: {} for level in levels.LEVELS}
        self.looked_through = {
            level: [(lower, self.by_level[lower]) for lower in below] for level, below in levels.BELOW.items()
        }

    def register(self, kind, kernel, level="numpy"):
        """Add a kernel, with the function's own signature, for arrays of that kind."""
        self.by_level[level][kind] = kernel

    def find(self, x):
        """The best kernel for `x` that the level in force allows, or None."""
        here = kind(x)
        for level, kernels in self.looked_through[levels.level()]:
            levels.load(level, here)
            if here in kernels:
                return kernels[here]
        return None


def operation(reference):
    """Make a forward `(x, ...) -> (result, cache)` an operation that kernels can be registered for.

    The result is called like the function itself and has its signature and docstring. `op.reference` is always the
    plain text; `op.register(kind, kernel, level)` adds a kernel, with the same signature, for arrays of that kind.
    Arrays in bfloat16 and float16 are refused where there's no kernel for them, unless `op.moves_numbers_only` was set:
    a plain text that computes nothing, like its backward's, is right for any dtype.
    """
    kernels = Kernels()
    first_name = next(iter(inspect.signature(reference).parameters))

    @functools.wraps(reference)
    def forward(*args, **kwargs):
        # A NumPy number, such as 1 / np.sqrt(d), would turn a float32 result into float64.
        args = [arg.item() if isinstance(arg, np.generic) else arg for arg in args]
        kwargs = {name: arg.item() if isinstance(arg, np.generic) else arg for name, arg in kwargs.items()}
        x = args[0] if args else kwargs.get(first_name)
        kernel = kernels.find(x)
        if kernel is None and not forward.moves_numbers_only:
            check_dtype(reference.__name__, x)
        return (kernel or reference)(*args, **kwargs)

    forward.moves_numbers_only = False
    forward.reference = reference
    forward.kernels = kernels
    forward.register = kernels.register
    return forward


def check_dtype(name, x):
    """Raise ValueError for an array in bfloat16 or float16, which the plain text would add up in too few digits."""
    library, dtype = kind(x)
    if dtype in LOW_PRECISION:
        where = {"numpy": "of NumPy on the CPU", "cupy": "of CuPy on the GPU"}[library]
        inside = " inside tinyvit.reference()" if levels.level() == "reference" else ""
        raise ValueError(
            f"{name}: no kernel for {dtype} arrays {where}{inside}, and the plain text needs at least float32; "
            'compute in float32 (x.astype("float32"), or precision="float32")'
        )


def backward_of(forward, inputs=None):
    """Make a backward `(dy, cache) -> gradients` the other half of `forward`, with kernels and `into=`.

    inputs  how many of the gradients, counted from the first, are those of inputs; the rest are those of parameters.
            None: all of them are those of inputs
    into    one entry for each parameter that the forward was given. An array: the gradient is added to it, and it is
            returned in the gradient's place. False: the gradient is not wanted, and None is returned in its place.
            None: a new array, as without `into`

    `op_backward.register(kind, kernel, level)` adds a kernel `(dy, cache, into=None)` that understands the plain
    text's cache; `op_backward.register_cache(type, kernel)` one that goes with a kernel's own cache type. Where there
    are no parameters, a kernel takes (dy, cache).
    """

    def decorate(reference):
        kernels, own_caches = Kernels(), {}

        @functools.wraps(reference)
        def backward(dy, cache, into=None):
            if isinstance(dy, np.generic):
                dy = dy.item()  # a Python number, which never changes the dtype of what it is multiplied with
            kernel = own_caches.get(type(cache)) or kernels.find(dy)
            if kernel is not None and inputs is None:
                check_into(reference.__name__, into or (), 0)
                return kernel(dy, cache)
            if kernel is not None:
                return kernel(dy, cache, into=into)
            if not forward.moves_numbers_only:
                check_dtype(reference.__name__, dy)
            gradients = reference(dy, cache)
            if into is None:
                return gradients
            gradients = gradients if isinstance(gradients, tuple) else (gradients,)
            first = len(gradients) if inputs is None else inputs
            check_into(reference.__name__, into, len(gradients) - first)
            gradients = gradients[:first] + tuple(map(add_to, into, gradients[first:]))
            return gradients if len(gradients) > 1 else gradients[0]

        backward.reference = reference
        backward.kernels = kernels
        backward.register = kernels.register
        backward.register_cache = own_caches.__setitem__
        forward.backward = backward
        return backward

    return decorate


def check_into(name, into, parameters):
    """Raise ValueError unless `into` has an entry for each parameter."""
    if len(into) != parameters:
        raise ValueError(f"{name}: into= has {len(into)} entries for {parameters} parameter gradients")


def add_to(destination, gradient):
    """Put a parameter's gradient where an entry of `into` says; see `backward_of`."""
    if destination is False:
        return None
    if destination is None:
        return gradient
    if destination.shape != gradient.shape:
        raise ValueError(f"into=: expected an array {gradient.shape} to add to, got {destination.shape}")
    destination += gradient
    return destination
