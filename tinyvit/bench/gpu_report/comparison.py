"""NumPy against CuPy: every operation."""

import math
from functools import partial

import numpy as np

from tinyvit import kernels
from tinyvit.backend import array_module, low_precision_dtype, to_device, to_numpy
from tinyvit.gradcheck import operation_cases

BOUNDS = {"float32": 1e-5, "bfloat16": 1.6e-2}  # of the largest number; no bound is stated for the other precisions
# How many of an operation's arrays are activations, if not all: the rest are parameters, and stay in float32 where they
# only shift or scale.
INPUTS = {
    "linear": 1, "layernorm": 1, "prepend_token": 1, "insert_tokens": 1, "add_positions": 1, "grid_positions": 0,
    "resize_positions": 0, "relative_bias": 0, "add_layernorm": 2, "add_branch": 2, "add_branch_layernorm": 2,
    "bias_gelu": 1, "batch_norm": 1, "batch_norm_running": 1, "group_norm": 1, "conv2d": 1, "standardize_weight": 0,
    "standardize_weight_original": 0,
}  # fmt: skip
MATRICES = {"linear": (1,), "conv2d": (1,)}  # parameters that are multiplied with


def run(options):
    """{"operations": rows}, each with "ok", and "problem" unless all are."""
    with kernels.using("numpy"):
        rows = [row for dtype in (("float32",) if options.device == "cpu" else ("float32", "bfloat16", "float16"))
                for row in operations(options.device, dtype)]  # fmt: skip
    wrong = ", ".join(dict.fromkeys(row["name"] for row in rows if not row["ok"]))
    return {"operations": rows} | ({"problem": f"not as it should be: {wrong}"} if wrong else {})


def row(name, precision, error):
    bound = BOUNDS.get(precision, math.inf)
    # Not `error > bound`: a NaN must be wrong.
    return {"name": name, "precision": precision, "error": error, "ok": math.isfinite(error) and error <= bound}


def operations(device, dtype):
    """Differences of each operation's results and gradients from NumPy's float32, relative to the largest number."""

    def moved(x):
        return to_device(x, device) if isinstance(x, np.ndarray) and device != "cpu" else x

    for name, forward, backward, inputs in operation_cases():
        own = name.partition(",")[0]
        rounded = [x.astype(low_precision_dtype(dtype if i < INPUTS.get(own, 9) or i in MATRICES.get(own, ())
                                                else "float32")) for i, x in enumerate(inputs)]  # fmt: skip
        expected = results(forward, backward, [np.asarray(x, "float32") for x in rounded])
        there = partial(forward.func, **{key: moved(value) for key, value in forward.keywords.items()})
        got = results(there, backward, list(map(moved, rounded)))
        yield row(name, dtype, float(np.max(list(map(distance, got, expected)))))


def results(forward, backward, inputs):
    """Result and gradients as float32 on the host; the gradient that comes in is the result's own shape."""
    y, cache = forward(*inputs)
    dy = tuple(map(cotangent, y)) if isinstance(y, tuple) else cotangent(y)
    found = [y, backward(dy, cache)]
    arrays = [array for some in found for array in (some if isinstance(some, tuple) else (some,))]
    return [to_numpy(array).astype("float32") for array in arrays]


def cotangent(y):
    """Random numbers of a result's shape, dtype and library: eighths, which every precision holds."""
    return array_module(y).asarray((np.random.default_rng(0).integers(-8, 9, y.shape) / 8).astype(y.dtype))


def distance(a, b):
    """The largest difference, relative to the largest number or, where that is less than 1, to 1."""
    return float(np.max(abs(a - b), initial=0)) / max(1.0, float(np.max(abs(b), initial=0)))


def lines(result):
    """The result as text."""
    shown = ["NumPy in float32 against the device: the largest difference, of the largest number"]
    rows = result["operations"]
    for precision in dict.fromkeys(row["precision"] for row in rows):
        own = [row for row in rows if row["precision"] == precision]
        furthest = sorted(own, key=lambda row: -row["error"] if math.isfinite(row["error"]) else -math.inf)[:3]
        named = ", ".join(f"{row['name']} {row['error']:.1e}" for row in furthest)
        right, bound = sum(row["ok"] for row in own), BOUNDS.get(precision, "none")
        shown.append(f"{precision:<9} {right} of {len(own)}, bound {bound}; the furthest: {named}")
    return shown
