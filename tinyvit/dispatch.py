"""The dispatcher: it stands between a caller and the implementations of an operation.

`functional/` holds the reference implementations. `kernels/` may register something faster for an array library and
dtype; the dispatcher takes the best that the current level allows (see `levels`). No implementation gets an array that
was not checked here, by `operands`: operands are floating-point arrays of one library, a gradient has the shape of the
result that it belongs to, and so does every entry of `into=`, which the dispatcher gives to every backward.

A call whose arguments have the types and dtypes of an earlier one goes straight to the implementation that was found
then: only shapes are left to check.
"""

import functools
import inspect
from operator import is_

import numpy as np

from tinyvit import levels
from tinyvit.operands import as_gradient, as_operand, check_into


def operation(reference=None, *, arrays="", any_dtype="", in_place=""):
    """Make a forward `(x, ...) -> (result, cache)` an operation that kernels can be registered for.

    The declaration has names of arguments, as in "x weight bias". An argument that it doesn't name takes no array:

    arrays      operands of floating-point numbers; by default the first argument. Ints and bools are converted
    any_dtype   other arrays, which keep their dtype and are brought to the first one's device: labels, indices, masks,
                targets. The first argument is among them where the reference computes nothing, like its backward's,
                and so is right for any dtype
    in_place    those of the arrays that are updated

    An operation has the signature and docstring of its function. `op.reference` is the reference implementation;
    `op.register(kind, kernel, level)` adds a kernel, with the same signature, for arrays of that kind; `op.which(x)`
    says what would run. Lists are taken as arrays, NumPy's scalars as Python's. Raises ValueError for operands that are
    not arrays of numbers or belong to another library than the first, for arrays in bfloat16 and float16 without a
    kernel, and for an array that wasn't declared.
    """
    if reference is None:
        return functools.partial(operation, arrays=arrays, any_dtype=any_dtype, in_place=in_place)
    name, signature = reference.__name__, inspect.signature(reference)
    names = list(signature.parameters)
    any_dtype, in_place = any_dtype.split(), tuple(in_place.split())
    dtype_agnostic = names[0] in any_dtype
    arrays = arrays.split() or ([] if dtype_agnostic else names[:1])
    declared = {*arrays, *any_dtype}
    if stray := (declared - {*names}) | ({names[0], *in_place} - declared):
        raise ValueError(f"{name}: expected names of {signature}, the first among them, got {', '.join(stray)}")
    kernels = levels.Kernels(reference)
    find = kernels.find if dtype_agnostic else kernels.find_precise

    @functools.wraps(reference)
    def forward(*args, **kwargs):
        if args and not kwargs:
            known = kernels.known.get((levels.level(), getattr(args[0], "dtype", None), *map(type, args)))
            if known is not None:
                implementation, dtypes = known
                for i, dtype in dtypes:
                    if args[i].dtype is not dtype:
                        break
                else:
                    return implementation(*args)
        bound = bind(args, kwargs)
        first = bound.arguments[names[0]]
        implementation = find(first)
        if not kwargs and all(map(is_, args, bound.args)):
            # A number on a GPU may come as a whole array the next time: None is no dtype, so it is checked again.
            dtypes = [(i, x.dtype if names[i] in declared else None)
                      for i, x in enumerate(args) if i and hasattr(x, "dtype")]  # fmt: skip
            kernels.known[levels.level(), first.dtype, *map(type, args)] = implementation, dtypes
        return implementation(*bound.args, **bound.kwargs)

    def bind(args, kwargs):
        """The arguments as they are declared, each checked and converted."""
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{name}: {error}") from None
        given, first = bound.arguments, None
        for argument, value in given.items():
            x = value.item() if isinstance(value, np.generic) else value  # 1 / np.sqrt(d) would make float64 of float32
            if argument in declared:
                if x is not None or signature.parameters[argument].default is not None:
                    x = as_operand(name, argument, x, first, argument in arrays)
                first = x if first is None else first
                if argument in in_place and x is not value:
                    got = getattr(value, "dtype", type(value).__name__)
                    raise ValueError(f"{name}: expected {argument} as an array of floating-point numbers, got {got}")
            elif hasattr(x, "ndim"):
                if x.ndim:
                    raise ValueError(f"{name}: expected {argument} as a number or a tuple, got an array {x.shape}")
                x = x.item() if type(x) is np.ndarray else x
            given[argument] = x
        return bound

    forward.in_place, forward.dtype_agnostic = in_place, dtype_agnostic
    forward.reference, forward.register, forward.which = reference, kernels.register, kernels.which
    return forward


def backward_of(forward, result, parameters=None, can_skip_inputs=False):
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
    in `into` and return them; what else it returns is added to them here. With `can_skip_inputs` all kernels take
    `inputs` as well, and needn't compute what isn't wanted. `op_backward.which(dy, cache)` says what would run. Raises
    ValueError for a `dy` or an `into` that doesn't fit.
    """

    def decorate(reference):
        kernels, name = levels.Kernels(reference), reference.__name__
        find = kernels.find if forward.dtype_agnostic else kernels.find_precise

        @functools.wraps(reference)
        def backward(dy, cache, into=None, inputs=True):
            try:
                expected = result(cache)
            except (AttributeError, IndexError, TypeError, ValueError) as error:
                raise ValueError(f"{name}: expected a cache of its forward, got {type(cache).__name__}") from error
            shape, dtype = getattr(dy, "shape", None), getattr(dy, "dtype", None)
            if isinstance(dy, tuple):  # whatever comes after the parts of the result
                shape = [getattr(part, "shape", None) for part in dy[: len(expected)]]
                dtype = tuple([(type(part), getattr(part, "dtype", None)) for part in dy])
            key = levels.level(), type(cache), type(dy), dtype
            implementation = kernels.known.get(key) if shape == expected else None
            if implementation is None:
                given, dy = dy, as_gradient(name, dy, expected, not forward.dtype_agnostic)
                implementation = find(dy, cache)
                if dy is given:
                    kernels.known[key] = implementation
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
            elif can_skip_inputs:
                gradients = implementation(dy, cache, into, inputs)
            else:
                gradients = implementation(dy, cache, into)
            gradients = list(gradients) if isinstance(gradients, tuple) else [gradients]
            first = len(gradients) - len(into)
            if not inputs:
                gradients[:first] = [None] * first
            for i, goal in enumerate(into, first):
                if goal is False:
                    gradients[i] = None
                elif goal is not None and goal is not gradients[i]:
                    goal += gradients[i]
                    gradients[i] = goal
            return tuple(gradients) if len(gradients) > 1 else gradients[0]

        backward.reference, backward.register, backward.which = reference, kernels.register, kernels.which
        backward.register_cache, backward.parameters = kernels.register_cache, parameters
        forward.backward = backward
        return backward

    return decorate
