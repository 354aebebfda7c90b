"""NumPy against CuPy: every operation, whole models, and the same training twice."""

import math
from dataclasses import replace
from functools import partial

import numpy as np

from tinyvit import kernels
from tinyvit.backend import Key, array_module, low_precision_dtype, to_device, to_numpy
from tinyvit.functional import cross_entropy, cross_entropy_backward
from tinyvit.functional.patches import as_pair
from tinyvit.gradcheck import operation_cases
from tinyvit.models import ViT
from tinyvit.nn import Context
from tinyvit.optim import AdamW
from tinyvit.training import preset, train_step

BOUNDS = {"float32": 1e-5, "bfloat16": 1.6e-2}  # of the largest number; no bound is stated for the other precisions
# Which inputs are multiplied with, and so have the precision of the activations.
MATRICES = {"linear": (1,), "conv2d": (1,)}
STEPS = 5  # of the training that is run twice
STEP_IMAGES = 64  # in each of these steps
IMAGES = 32


def run(settings):
    """{"operations": rows, "models": rows, "twice": rows}, each with "ok", and "problem" unless all are."""
    precisions = ("float32",) if settings.device == "cpu" else ("float32", "tf32", "bfloat16", "float16")
    with kernels.using("numpy"):
        dtypes = [precision for precision in precisions if precision != "tf32"]
        result = {
            "operations": [row for dtype in dtypes for row in operations(settings.device, dtype)],
            "models": [model_row(settings.device, p, name) for p in precisions for name in models(settings)],
            "twice": [twice(settings, precision) for precision in precisions],
        }
    wrong = [row["name"] for rows in result.values() for row in rows if not row["ok"]]
    return result | ({"problem": f"not as it should be: {', '.join(dict.fromkeys(wrong))}"} if wrong else {})


def row(name, precision, error, **more):
    bound = BOUNDS.get(precision)
    # Not `error > bound`: a NaN must be wrong.
    ok = math.isfinite(error) and (bound is None or error <= bound)
    return {"name": name, "precision": precision, "error": error, "bound": bound, "ok": ok, **more}


def operations(device, dtype):
    """Differences of each operation's results and gradients from NumPy's float32, relative to the largest number."""
    for name, forward, backward, inputs in operation_cases():
        rounded = [in_precision(x, dtype, name, i) for i, x in enumerate(inputs)]
        expected = results(forward, backward, [np.asarray(x, "float32") for x in rounded])
        options = {key: moved(value, device) for key, value in forward.keywords.items()}
        got = results(partial(forward.func, **options), backward, [moved(x, device) for x in rounded])
        yield row(name, dtype, float(np.max(list(map(distance, got, expected)))))


def in_precision(x, dtype, name, place):
    """An input as an operation gets it at a precision: parameters that only shift or scale stay in float32."""
    parameter = place >= number_of_inputs(name)
    matrix = place in MATRICES.get(name.partition(",")[0], ())
    return x.astype(low_precision_dtype("float32" if parameter and not matrix else dtype))


def number_of_inputs(name):
    """How many of an operation's arrays are activations; the rest are parameters."""
    own = name.partition(",")[0]
    return {"linear": 1, "layernorm": 1, "prepend_token": 1, "insert_tokens": 1, "add_positions": 1,
            "grid_positions": 0, "resize_positions": 0, "relative_bias": 0, "add_layernorm": 2, "add_branch": 2,
            "add_branch_layernorm": 2, "bias_gelu": 1, "batch_norm": 1,
            "batch_norm_running": 1, "group_norm": 1, "conv2d": 1, "standardize_weight": 0,
            "standardize_weight_original": 0}.get(own, 4)  # fmt: skip


def moved(x, device):
    return to_device(x, device) if isinstance(x, np.ndarray) and device != "cpu" else x


def results(forward, backward, inputs):
    """Result and gradients, flat, as float32 on the host; the gradient that comes in is the result's own shape."""
    y, cache = forward(*inputs)
    ys = y if isinstance(y, tuple) else (y,)
    dys = tuple(cotangent(part, i) for i, part in enumerate(ys))
    gradients = backward(dys if isinstance(y, tuple) else dys[0], cache)
    gradients = gradients if isinstance(gradients, tuple) else (gradients,)
    return [to_numpy(array).astype("float32") for array in (*ys, *gradients)]


def cotangent(y, seed):
    """Random numbers of a result's shape, dtype and library, powers of two times small integers in any precision."""
    dy = np.random.default_rng(seed).integers(-8, 9, y.shape) / 8
    return array_module(y).asarray(dy.astype(y.dtype))


def distance(a, b):
    """The largest difference relative to the largest number (at least 1)."""
    return float(np.max(abs(a - b), initial=0) / max(1.0, float(np.max(abs(b), initial=0))))


def models(settings):
    """Shapes by name: the digits', and the small ViT of the recipe cifar10 unless it is a dry run."""
    names = ("digits",) if settings.dry_run else ("digits", "cifar10")
    return {name: replace(preset(name).model, drop_rate=0.0, drop_path_rate=0.0) for name in names}


def model_row(device, precision, name):
    """How far logits and gradients of a whole model are from NumPy's float32, each of its own largest number."""
    config = preset(name).model
    config = replace(config, drop_rate=0.0, drop_path_rate=0.0)
    ours, theirs = ViT(config), ViT(config, device=device, precision=precision)
    state = redrawn(ours)
    theirs.load_state_dict(state)
    images, labels = batch(config, IMAGES)
    expected = logits_and_gradients(ours, images, labels)
    got = logits_and_gradients(theirs, to_device(images, device), to_device(labels, device))
    errors = {key: distance_of_its_own(got[key], expected[key]) for key in expected}
    worst = list(errors)[np.argmax(list(errors.values()))]  # a NaN, if there is one
    return row(f"ViT {name}", precision, errors[worst], worst=worst, logits=errors["logits"])


def redrawn(model):
    """Every parameter drawn from N(0, 0.02); a ViT's initial head is zero and would block all gradients."""
    for name, parameter in model.named_parameters():
        noise = Key(1, path=name).generator().standard_normal(parameter.shape)
        parameter.data = parameter.data + 0.02 * noise.astype("float32")
    return model.state_dict()


def logits_and_gradients(model, images, labels):
    model.zero_grad()
    logits, cache = model(images, Context())
    _, loss_cache = cross_entropy(logits, labels)
    model.backward(cross_entropy_backward(1.0, loss_cache), cache)
    gradients = {name: to_numpy(parameter.grad).copy() for name, parameter in model.named_parameters()}
    return {"logits": to_numpy(logits).astype("float32")} | gradients


def distance_of_its_own(a, b):
    """The largest difference relative to the largest number, or to 1 where all should be zero (a key's bias)."""
    largest = float(abs(b).max())
    return float(abs(a - b).max()) / (largest if largest > 1e-6 else 1.0)


def batch(config, count, seed=0):
    generator = np.random.default_rng(seed)
    images = generator.standard_normal((count, config.in_chans, *as_pair(config.img_size)), "float32")
    return images, generator.integers(0, config.num_classes, count)


def twice(settings, precision):
    """Whether a few training steps, including dropout, give the same bits when they are repeated."""
    name = "digits" if settings.dry_run else "cifar10"
    config = replace(preset(name).model, drop_rate=0.1)
    first, second = (trained(config, settings.device, precision) for _ in range(2))
    return {"name": f"{STEPS} steps of {name}, twice", "precision": precision, "ok": first == second}


def trained(config, device, precision):
    """The bytes of a model's weights after a few steps."""
    model = ViT(config, device=device, precision=precision)
    optimizer = AdamW(model)
    images, labels = (to_device(array, device) for array in batch(config, STEP_IMAGES))
    for step in range(STEPS):
        train_step(model, optimizer, images, labels, Context(training=True, key=Key(0, step)), clip_norm=1.0)
    return to_numpy(model.storage.data).tobytes()
