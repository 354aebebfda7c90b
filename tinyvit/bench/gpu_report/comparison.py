"""NumPy against CuPy: every operation, whole models, and the same training twice."""

import math
from dataclasses import replace
from functools import partial

import numpy as np

from tinyvit import kernels
from tinyvit.backend import Key, array_module, low_precision_dtype, to_device, to_numpy
from tinyvit.bench.cases import Case
from tinyvit.bench.steps import batch
from tinyvit.functional import cross_entropy, cross_entropy_backward
from tinyvit.gradcheck import operation_cases
from tinyvit.models import ViT
from tinyvit.nn import Context
from tinyvit.optim import AdamW
from tinyvit.training import preset, train_step

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
STEPS = 5        # of the training that is run twice
STEP_IMAGES = 64  # in each of these steps


def run(options):
    """{"operations": rows, "models": rows, "twice": rows}, each with "ok", and "problem" unless all are."""
    device, names = options.device, ("digits",) if options.dry_run else ("digits", "cifar10")
    precisions = ("float32",) if device == "cpu" else ("float32", "tf32", "bfloat16", "float16")
    with kernels.using("numpy"):
        result = {
            "operations": [row for dtype in precisions if dtype != "tf32" for row in operations(device, dtype)],
            "models": [model_row(device, precision, name) for precision in precisions for name in names],
            "twice": [twice(device, precision, names[-1]) for precision in precisions],
        }
    wrong = [row["name"] for rows in result.values() for row in rows if not row["ok"]]
    return result | ({"problem": f"not as it should be: {', '.join(dict.fromkeys(wrong))}"} if wrong else {})


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


def distance(a, b, least=1.0):
    """The largest difference, relative to the largest number or, where that is less than `least`, to 1."""
    largest = float(np.max(abs(b), initial=0))
    return float(np.max(abs(a - b), initial=0)) / (largest if largest > least else 1.0)


def model_row(device, precision, name):
    """How far logits and gradients of a whole model are from NumPy's float32, each of its own largest number."""
    config = replace(preset(name).model, drop_rate=0.0, drop_path_rate=0.0)
    ours, theirs = ViT(config), ViT(config, device=device, precision=precision)
    for path, parameter in ours.named_parameters():  # a ViT's initial head is zero and would block all gradients
        noise = Key(1, path=path).generator().standard_normal(parameter.shape)
        parameter.data = parameter.data + 0.02 * noise.astype("float32")
    theirs.load_state_dict(ours.state_dict())
    expected, got = (logits_and_gradients(model, config) for model in (ours, theirs))
    # Some should be zero, such as the gradient of a key's bias.
    errors = {path: distance(got[path], expected[path], 1e-6) for path in expected}
    worst = list(errors)[int(np.argmax(list(errors.values())))]  # a NaN, if there is one
    return row(f"ViT {name}, {worst}", precision, errors[worst])


def logits_and_gradients(model, config):
    images, labels = (to_device(x, model.device) for x in batch(Case("", "train", 32, config), "float32"))
    model.zero_grad()
    logits, cache = model(images, Context())
    model.backward(cross_entropy_backward(1.0, cross_entropy(logits, labels)[1]), cache)
    gradients = {path: parameter.grad for path, parameter in model.named_parameters()}
    return {path: to_numpy(x).astype("float32") for path, x in ({"logits": logits} | gradients).items()}


def twice(device, precision, name):
    """Whether a few training steps, including dropout, give the same bits when they are repeated."""
    config, found = replace(preset(name).model, drop_rate=0.1), []
    for _ in range(2):
        model = ViT(config, device=device, precision=precision)
        optimizer = AdamW(model)
        images, labels = (to_device(x, device) for x in batch(Case("", "train", STEP_IMAGES, config), "float32"))
        for step in range(STEPS):
            train_step(model, optimizer, images, labels, Context(training=True, key=Key(0, step)), clip_norm=1.0)
        found.append(to_numpy(model.storage.data).tobytes())
    return {"name": f"{STEPS} steps of {name}, twice", "precision": precision, "ok": found[0] == found[1]}


def lines(result):
    """The result as text."""
    rows = [*result["operations"], *result["models"]]
    shown = ["NumPy in float32 against the device: the largest difference, of the largest number"]
    for precision in dict.fromkeys(row["precision"] for row in rows):
        own = [row for row in rows if row["precision"] == precision]
        furthest = sorted(own, key=lambda row: -row["error"] if math.isfinite(row["error"]) else -math.inf)[:3]
        named = ", ".join(f"{row['name']} {row['error']:.1e}" for row in furthest)
        right, bound = sum(row["ok"] for row in own), BOUNDS.get(precision, "none")
        shown.append(f"{precision:<9} {right} of {len(own)}, bound {bound}; the furthest: {named}")
    return shown + [f"{row['name']}, {row['precision']}: {'the same bits' if row['ok'] else 'OTHER BITS'}"
                    for row in result["twice"]]  # fmt: skip
