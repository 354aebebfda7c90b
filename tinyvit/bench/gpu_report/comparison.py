"""NumPy against CuPy: every operation."""

from functools import partial

import numpy as np

from tinyvit import kernels
from tinyvit.arrays import array_module, low_precision_dtype
from tinyvit.backend import to_device, to_numpy
from tinyvit.gradcheck import operation_cases

BOUNDS = {"float32": 1e-5, "bfloat16": 1.6e-2, "float16": 1.6e-2}  # of the largest number
# Parameters that only shift or scale stay in float32: arrays from the third on in products, from the second on in those
# with parameters, and all of what is computed of parameters alone. All other arrays are activations.
PRODUCTS = ("linear", "conv2d", "conv_transpose2d")
WITH_PARAMETERS = ("layernorm", "prepend_token", "insert_tokens", "add_positions", "batch_norm", "batch_norm_running",
                   "group_norm")  # fmt: skip
OF_PARAMETERS = ("grid_positions", "resize_positions", "relative_bias", "standardize_weight",
                 "standardize_weight_original")  # fmt: skip


def run(options, seconds):
    """{"operations": rows}, each with "ok", and "problem" unless all are; and the rows as text."""
    rows, shown = [], ["NumPy in float32 against the device: the largest difference, of the largest number"]
    for dtype in ("float32",) if options.device == "cpu" else BOUNDS:
        with kernels.using("numpy"):
            own = list(operations(options.device, dtype))
        furthest = sorted(own, key=lambda row: -row["error"])[:3]
        named = ", ".join(f"{row['name']} {row['error']:.1e}" for row in furthest)
        right = sum(row["ok"] for row in own)
        shown.append(f"{dtype:<9} {right} of {len(own)}, bound {BOUNDS[dtype]}; the furthest: {named}")
        rows += own
    wrong = ", ".join(dict.fromkeys(row["name"] for row in rows if not row["ok"]))
    return {"operations": rows} | ({"problem": f"not as it should be: {wrong}"} if wrong else {}), shown


def operations(device, dtype):
    """Differences of each operation's results and gradients from NumPy's float32, relative to the largest number, and
    whether they are within the bound (a NaN isn't)."""

    def move(x):
        return to_device(x, device) if isinstance(x, np.ndarray) and device != "cpu" else x

    for name, forward, backward, inputs in operation_cases():
        own = name.partition(",")[0]
        low = 2 if own in PRODUCTS else 1 if own in WITH_PARAMETERS else 0 if own in OF_PARAMETERS else len(inputs)
        rounded = [x.astype(low_precision_dtype(dtype if i < low else "float32")) for i, x in enumerate(inputs)]
        expected = results(forward, backward, [np.asarray(x, "float32") for x in rounded])
        there = partial(forward.func, **{key: move(value) for key, value in forward.keywords.items()})
        got = results(there, backward, list(map(move, rounded)))
        error = float(np.max(list(map(distance, got, expected))))
        yield {"name": name, "precision": dtype, "error": error, "ok": error <= BOUNDS.get(dtype, 1e-5)}


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
