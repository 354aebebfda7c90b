"""Passes arrays that don't fit to operations, and says what is wrong with the results at each level.

A compiled kernel that trusts a shape ends its process, so the tests run this in one of its own.
"""

import resource
import warnings
from functools import partial
from math import prod

import numpy as np
from strategies import laid_out

from tinyvit import functional as F
from tinyvit import gradcheck, kernels, levels
from tinyvit.functional.adam import adam_step
from tinyvit.functional.flat import move_average, squared_norm
from tinyvit.functional.muon import Matrix, muon_step

PLACES = ("operand", "dy", "into", "cache")
MEMORY = 8 << 30  # bytes; what walks through a huge array is to fail instead of taking all of the machine's


def in_place(update, *options):
    """An update of flat arrays as a forward that returns all of them, whatever it changed."""
    return lambda *arrays: (update(*arrays, *options), arrays)[::-1]


def flat_cases():
    """As `gradcheck.operation_cases`, for what has no backward."""
    flat = [np.linspace(0.1, n, 12) for n in range(1, 5)]
    return [
        ("adam_step", in_place(adam_step, 3, 0.1, (0.9, 0.99), 1e-8, 0.1), None, flat),
        ("move_average", in_place(move_average, 0.25), None, flat[:2]),
        ("muon_step", in_place(muon_step, (Matrix(2, 2, 3), Matrix(8, 4, 1)), 0.1, 0.9, True, 5, 0.1), None, flat[:3]),
        ("squared_norm", lambda x: (squared_norm(x), None), None, flat[:1]),
        ("cast", lambda x: (F.cast(x, "float64"), None), None, flat[:1]),
        ("cast, out", lambda x, out: (F.cast(x, "float64", out), None), None, flat[:2]),
    ]


def array_cases():
    """(forward, backward, arrays) by name; what the forward gets besides arrays is bound, targets are an array."""
    cases = {}
    for name, forward, backward, arrays in [*gradcheck.operation_cases(), *flat_cases()]:
        options = dict(getattr(forward, "keywords", {}))
        forward = getattr(forward, "func", forward)
        if name in gradcheck.MULTIPLE_RESULTS:
            forward = getattr(F, name)
        extra = [key for key in ("index", "targets") if key in options]
        arrays = [np.asarray(x, "float32") for x in arrays] + [np.asarray(options.pop(key)) for key in extra]
        cases[name] = partial(forward, **options), backward, arrays
    return cases


CASES = array_cases()
# Of a filter of equal numbers the reference leaves what their mean was rounded by, 1e-7 of them, over √ε or over ε.
ROUNDING = {"standardize_weight": 1e-3, "standardize_weight_original": 1e-1}


def changed(array, dtype, layout, start, removed, new):
    """An array of another shape, dtype and memory layout, with the numbers of `array` as far as they go.

    Its shape is that of `array`, in which axes of the lengths `new` replace the `removed` ones from `start` on.
    """
    shape = (*array.shape[:start], *new, *array.shape[start + removed :])
    count = prod(shape)
    # What is large takes no memory, and as nested lists it would take gigabytes. A kernel that walks through it leaves
    # what there is.
    if layout == "broadcast" or count > (1e4 if layout == "list" else 1e7):
        return np.broadcast_to(changed(array, dtype, "contiguous", 0, array.ndim, ()), shape)
    x = np.resize(array if array.size else np.ones(1), count).reshape(shape)
    x = np.zeros(shape, [("a", "f4")]) if dtype == "structured" else x.astype(dtype)
    if layout == "list":
        return x.tolist()
    return laid_out(x, layout if x.ndim and not x.dtype.hasobject else "contiguous", writeable=True)


def flattened(value):
    """The arrays in a nest of tuples, in order."""
    if isinstance(value, tuple):
        return [array for entry in value for array in flattened(entry)]
    return [] if value is None else [np.asarray(value)]


def outcome(level, case, place, which, change):
    """The results of a forward and its backward at a level with one array changed, or the error, or a complaint."""
    forward, backward, arrays = CASES[case]
    arrays, fits = [x.copy() for x in arrays], True

    def put(arrays, which=which):
        nonlocal fits
        i = which % len(arrays)
        new = changed(arrays[i], *change)
        arrays[i], fits = new, np.shape(new) == arrays[i].shape

    if place == "operand":
        put(arrays)
    given = [(x, np.array(x)) for x in arrays if np.size(x) < 1e6]
    try:
        with kernels.using(level):
            result, cache = forward(*arrays)
            results = flattened(result)
            if backward is None:
                return results
            dy, into = [np.cos(np.arange(y.size)).reshape(y.shape).astype(y.dtype) for y in results], None
            if place == "dy":
                put(dy)
            elif place == "cache":
                names = [name for name in cache._fields if isinstance(getattr(cache, name), np.ndarray)]
                fields = [getattr(cache, name) for name in names]
                if fields:
                    put(fields)
                cache = cache._replace(**dict(zip(names, fields)))
            elif place == "into" and backward.parameters:
                into = [np.zeros(shape, "float32") for shape in backward.parameters(cache)]
                put(into)
                given += [(x, np.array(x)) for x in into if np.size(x) < 1e6]
            gradients = backward(tuple(dy) if isinstance(result, tuple) else dy[0], cache, into)
    except Exception as error:
        if not all(np.array_equal(x, before) for x, before in given):
            return f"wrote into an array before it refused: {error}"
        if place in ("dy", "into") and not fits and place not in str(error):
            return f"doesn't say that {place} is wrong: {error}"
        return error
    if place in ("dy", "into") and not fits:
        return f"took an array of another shape as {place}"
    return results + flattened(tuple(gradients) if isinstance(gradients, tuple) else gradients)


def wrong(case, place, which, change):
    """Run an example at every level; return a complaint in words, or None if all is well.

    Each level raises a ValueError or TypeError of one line, or returns what the reference does. Of a cache that was
    tampered with the result may be anything, and so may the error.
    """
    found = {level: outcome(level, case, place, which, change) for level in levels.available()}
    expected = found["reference"]
    for level, got in found.items():
        if isinstance(got, str):
            return f"{level}: {got}"
        if isinstance(got, Exception):
            clear = place == "cache" or isinstance(got, (ValueError, TypeError))
            if not clear or "\n" in str(got) or not str(got):
                return f"{level}: {type(got).__name__}: {got}"
        elif isinstance(expected, Exception) and place != "cache":
            return f"{level}: returns a result where the reference raises {type(expected).__name__}: {expected}"
        elif place != "cache":
            for a, b in zip(got, expected, strict=True):
                if a.shape != b.shape or a.dtype != b.dtype:
                    return f"{level}: {a.dtype} {a.shape} where the reference returns {b.dtype} {b.shape}"
                largest = abs(b[np.isfinite(b)]).max(initial=1)
                if not np.allclose(a, b, rtol=1e-4, atol=ROUNDING.get(case, 1e-4) * largest, equal_nan=True):
                    return f"{level}: differs from the reference by {abs(a - b).max()}"
    return None


def begin():
    """Prepare a process for examples."""
    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
