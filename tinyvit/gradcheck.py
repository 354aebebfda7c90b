"""Checks of hand-written backwards by the complex step and by central differences.

A backward is compared with the derivative of s = Σ dy · y, where dy is drawn at random:

    complex step         ds/dv ≈ Im s(x + i h v) / h              h = 1e-20; exact to rounding, nothing is subtracted
    central differences  ds/dv ≈ (s(x + h v) − s(x − h v)) / 2h   h = 1e-5; about ten digits, for any function

Squire & Trapp 1998, "Using complex variables to estimate derivatives of real functions". See notebooks/09.
"""

import copy
import functools
import inspect
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import NamedTuple

import numpy as np

from tinyvit import functional as F
from tinyvit.arrays import array_module
from tinyvit.backend import device_of, to_device, to_numpy
from tinyvit.keys import Key

STEPS = {"complex": 1e-20, "central": 1e-5}
MODEL_STEPS = {"complex": 1e-20, "central": 1e-4}  # in a direction of millions of numbers, rounding counts for more
BOUNDS = {"complex": 1e-10, "central": 1e-7}      # of one operation in float64
MODEL_BOUNDS = {"complex": 1e-9, "central": 1e-7}  # of a whole model


class Finding(NamedTuple):
    """The worst disagreement for one input."""

    name: str
    error: float     # |got − expected| / max(1, |expected|)
    where: str       # "entry (0, 3)", or "direction 7"
    got: float       # by the backward
    expected: float  # by the numerical derivative


@dataclass(frozen=True)
class Report:
    """The result of a check: a `Finding` per input."""

    method: str
    inputs: tuple[Finding, ...]

    @property
    def max_error(self):
        """max |got − expected| / max(1, |expected|) over all inputs; infinite if anything was NaN."""
        return max((finding.error for finding in self.inputs), default=0.0)

    @property
    def worst(self):
        """The input with the largest error."""
        return max(self.inputs, key=lambda finding: finding.error)

    def __str__(self):
        lines = [f"gradients against {self.method}: largest error {self.max_error:.1e}"]
        for name, error, where, got, expected in self.inputs:
            lines.append(f"  {name:<12} {error:.1e} at {where}: backward gave {got:.12g}, expected {expected:.12g}")
        return "\n".join(lines)


def check(forward, backward, inputs, method="complex", *, directions=None, step=None, seed=0):
    """Compare `backward` with a numerical derivative of `forward`; returns a `Report`.

    forward     (*inputs) -> (y, cache), as all of `tinyvit.functional`
    backward    (dy, cache) -> the gradients of the floating-point arrays among the inputs, in their order:
                one bare, several as a tuple
    inputs      the arguments; floating-point arrays are varied, everything else (labels, a rate) stays as it is
    method      "complex", for functions of complex numbers (no abs, no comparison), or "central"
    directions  None checks every entry; a number, that many random directions of each input
    step        h; by default 1e-20 for "complex", 1e-5 for "central"

    Raises ValueError if the backward returns the wrong number of gradients or shapes, or if the forward drops the
    imaginary part.
    """
    if method not in STEPS:
        raise ValueError(f"unknown method {method!r}; expected one of {', '.join(STEPS)}")
    if not isinstance(inputs, (tuple, list)):
        raise ValueError(f"gradcheck: expected the inputs as a tuple, got {type(inputs).__name__}")
    step = STEPS[method] if step is None else step
    varied = [i for i, x in enumerate(inputs) if getattr(getattr(x, "dtype", None), "kind", "") == "f"]
    if directions is not None and directions < 1:
        raise ValueError(f"gradcheck: expected at least 1 direction, got {directions}")
    if not varied:
        raise ValueError("gradcheck: none of the inputs is an array of floating-point numbers")
    names = _names(forward, len(inputs))
    generator = Key(seed, path="gradcheck").generator()

    y, cache = _result_and_cache(forward(*inputs))
    dy = to_device(generator.standard_normal(y.shape), device_of(y)).astype(y.dtype)
    if isinstance(dy, np.ndarray):
        dy.flags.writeable = False  # it is used again below
    gradients = backward(dy, cache)
    gradients = gradients if isinstance(gradients, tuple) else (gradients,)
    if len(gradients) != len(varied):
        raise ValueError(f"gradcheck: expected {len(varied)} gradients from the backward, got {len(gradients)}")
    for i, gradient in zip(varied, gradients):
        if getattr(gradient, "shape", None) != inputs[i].shape:
            raise ValueError(
                f"gradcheck: expected a gradient {inputs[i].shape} of {names[i]}, "
                f"got {getattr(gradient, 'shape', type(gradient).__name__)}"
            )

    exact = [x.astype("float64") if i in varied else x for i, x in enumerate(inputs)]
    weights = to_numpy(dy).astype("float64")

    def numerical(i, v):
        def s(shift):
            moved = list(exact)
            moved[i] = exact[i] + shift * to_device(v, device_of(exact[i]))
            return (weights * to_numpy(_result_and_cache(forward(*moved))[0])).sum()

        return _derivative(s, method, step, v)

    findings = []
    for i, gradient in zip(varied, gradients):
        gradient, shape = to_numpy(gradient).astype("float64"), inputs[i].shape
        if directions is None:
            expected = np.zeros(shape)
            for entry in np.ndindex(shape):
                v = np.zeros(shape)
                v[entry] = 1
                expected[entry] = numerical(i, v)
            findings.append(_worst(names[i], gradient, expected, lambda entry: f"entry {tuple(map(int, entry))}"))
        else:
            vs = generator.standard_normal((directions, *shape))
            got = np.array([(gradient * v).sum() for v in vs])
            expected = np.array([numerical(i, v) for v in vs])
            findings.append(_worst(names[i], got, expected, lambda entry: f"direction {entry[0]}"))
    return Report(method, tuple(findings))


def check_model(model, *inputs, method="complex", directions=20, step=None, seed=0, redraw=True, ctx=None):
    """Compare a module's backward with numerical derivatives in random directions of all parameters and inputs at once.

    Returns a `Report` with one finding, in float64. The module itself doesn't change. `redraw` first draws every
    parameter from N(0, 0.2²): a head that starts at zero lets no gradient through, so a check there proves nothing.
    """
    step = MODEL_STEPS[method] if step is None else step
    generator = Key(seed, path="gradcheck").generator()
    model = copy.deepcopy(model).to(dtype="float64")
    if redraw:
        for parameter in model.parameters():
            parameter.data = to_device(0.2 * generator.standard_normal(parameter.shape), model.device)
    inputs = [x.astype("float64") for x in inputs]
    parameters = [parameter for parameter in model.parameters() if parameter.trainable]
    centre = [to_numpy(parameter.data).copy() for parameter in parameters] + [to_numpy(x) for x in inputs]

    y, cache = model(*inputs, ctx)
    dy = generator.standard_normal(y.shape)
    model.zero_grad()
    dinputs = model.backward(to_device(dy, model.device), cache)
    dinputs = dinputs if isinstance(dinputs, tuple) else (dinputs,)
    gradients = [to_numpy(parameter.grad) for parameter in parameters] + [to_numpy(dx) for dx in dinputs]

    moving = model.to(dtype="complex128") if method == "complex" else model
    moved_parameters = [parameter for parameter in moving.parameters() if parameter.trainable]

    def derivative(vs):
        def s(shift):
            moved = [to_device(x + shift * v, moving.device) for x, v in zip(centre, vs)]
            for parameter, value in zip(moved_parameters, moved):
                parameter.data = value
            return (dy * to_numpy(moving(*moved[len(parameters) :], ctx)[0])).sum()

        return _derivative(s, method, step, *vs)

    got, expected = np.zeros(directions), np.zeros(directions)
    for n in range(directions):
        vs = [generator.standard_normal(x.shape) for x in centre]
        got[n] = sum((gradient * v).sum() for gradient, v in zip(gradients, vs))
        expected[n] = derivative(vs)
    return Report(method, (_worst("all", got, expected, lambda entry: f"direction {entry[0]}"),))


def _derivative(s, method, step, *vs):
    """The derivative of s at 0, where `s(shift)` moves by shift times the direction given by the arrays vs."""
    if method == "complex":
        value = s(1j * step)
        if not np.iscomplexobj(value):
            raise ValueError("gradcheck: the forward dropped the imaginary part; use method='central'")
        return value.imag / step
    step = step / sum((v * v).sum() for v in vs) ** 0.5  # the points are h away, however long the direction
    return (s(step) - s(-step)) / (2 * step)


def _result_and_cache(returned):
    if not (isinstance(returned, tuple) and len(returned) == 2):
        raise ValueError(f"gradcheck: expected the forward to return (y, cache), got {type(returned).__name__}")
    return returned


def _worst(name, got, expected, place):
    error = np.abs(got - expected) / np.maximum(1, np.abs(expected))
    error = np.where(np.isnan(error), np.inf, error)
    if error.size == 0:
        return Finding(name, 0.0, "(empty)", 0.0, 0.0)
    entry = np.unravel_index(error.argmax(), error.shape)
    return Finding(name, float(error[entry]), place(entry), float(got[entry]), float(expected[entry]))


def _names(forward, count):
    names = list(inspect.signature(forward).parameters)
    return names[:count] + [f"input {i}" for i in range(len(names), count)]


# -- every operation, on small arrays of distinct sizes ----------------------------------------------------------

B, N, D, H, K = 2, 5, 12, 3, 4
MULTIPLE_RESULTS = ("split_heads",)  # have several results, of one shape


def stack_results(operation):
    """An operation with several results as one whose result is the stack of them."""

    @functools.wraps(operation)  # its backward, too
    def forward(*args, **kwargs):
        results, cache = operation(*args, **kwargs)
        return array_module(results[0]).stack(results), cache

    return forward


def operation_cases(seed=0, only=None):
    """(name, forward, backward, inputs) for every operation of `tinyvit.functional`, in float64.

    `only`: the name of one case, whose inputs alone are drawn. They are the same with and without the others.
    """

    def normal(*shape):
        return generator.standard_normal(shape)

    def apart(*shape):
        """Numbers that differ from each other and from zero, by more than a central difference changes them."""
        return generator.permutation(np.linspace(-2, 2, 2 * prod(shape))[::2]).reshape(shape)

    def heads():
        return normal(3, B, H, N, D // H)

    def case(*inputs, **options):
        return inputs, options

    key = Key(seed, path="mask")
    cases = {
        "patchify": lambda: case(normal(B, 3, 4, 6), patch=(2, 3)),
        "unpatchify": lambda: case(normal(B, 4, D), patch=(2, 3), img_size=(4, 6)),
        "tubelets": lambda: case(normal(B, 3, 4, 4, 6), tubelet=(2, 2, 3)),
        "from_tubelets": lambda: case(normal(B, 6, 2 * D), tubelet=(2, 2, 3), size=(6, 4, 3)),
        "split_frames": lambda: case(normal(B, 6, D), frames=3),
        "join_frames": lambda: case(normal(6, N, D), frames=3),
        "linear": lambda: case(normal(B, N, D), normal(K, D), normal(K)),
        "linear, no bias": lambda: case(normal(B, N, D), normal(K, D)),
        "layernorm": lambda: case(normal(B, N, D), normal(D), normal(D)),
        "rmsnorm": lambda: case(normal(B, N, D), normal(D)),
        **dict.fromkeys((
            "softmax", "gelu", "gelu_tanh", "quick_gelu", "tanh", "pool_token", "first_tokens", "pool_mean",
            "l2_normalise", "gather_batch", "sigmoid", "silu"
        ), lambda: case(normal(B, N, D))),
        "split_heads": lambda: case(normal(B, N, 3 * D), num_heads=H),
        "merge_heads": lambda: case(normal(B, H, N, D // H)),
        "attention": lambda: case(*heads()),
        "attention, bias": lambda: case(*heads(), normal(H, N, N)),
        "packed_attention": lambda: case(*heads(), bounds=(0, 2, 2, 4, 5)),
        "attention_dropout": lambda: case(*heads(), rate=0.3, key=key),
        "tiled_attention": lambda: case(*heads(), tile=2),
        "tiled_attention, bias": lambda: case(*heads(), normal(H, N, N), tile=2),
        "dropout": lambda: case(normal(B, N, D), rate=0.3, key=key),
        "drop_path": lambda: case(normal(8, N, D), rate=0.3, key=key),
        "embedding": lambda: case(normal(K, D), index=generator.integers(0, K, (B, N))),
        "prepend_token": lambda: case(normal(B, N, D), normal(1, 1, D)),
        "insert_tokens": lambda: case(normal(B, N, D), normal(1, 3, D), at=2),
        "add_positions": lambda: case(normal(B, N, D), normal(1, N, D)),
        "grid_positions": lambda: case(normal(1, 3, D // 2), normal(1, 2, D // 2)),
        "resize_positions": lambda: case(normal(1, 7, D), grid=(2, 3), new_grid=(3, 5), method="bilinear"),
        "resize_positions, bicubic": lambda: case(normal(1, 7, D), grid=(2, 3), new_grid=(3, 5), method="bicubic"),
        "resize_positions, zoom": lambda: case(normal(1, 7, D), grid=(2, 3), new_grid=(3, 5), method="zoom"),
        "rope_halves": lambda: case(normal(B, H, N, D // H), positions=generator.integers(0, 9, (N, 2))),
        "rope": lambda: case(normal(B, H, N, D // H), grid=(2, 2)),
        "take_tokens": lambda: case(normal(B, N, D), index=np.array([[0, 3, 1], [4, 2, 0]])),
        "replace_tokens": lambda: case(normal(B, N, D), normal(1, 1, D), mask=generator.random((B, N)) < 0.5),
        "place_tokens": lambda: case(normal(B, 3, D), normal(1, 1, D), index=np.array([[0, 3, 1], [4, 2, 0]]), count=N),
        "mean_squared_error": lambda: case(normal(B, N, D), targets=normal(B, N, D)),
        "modulate": lambda: case(normal(B, N, D), normal(B, D), normal(B, D)),
        "add_gated": lambda: case(normal(B, N, D), normal(B, N, D), normal(B, D)),
        "embed_labels": lambda: case(normal(K, D), labels=np.array([2, 0, 2])),
        "add_noise": lambda: case(normal(B, 3, 4, 5), noise=normal(B, 3, 4, 5), level=generator.random(B)),
        "variational_bound": lambda: case(normal(4, 3, D), gap=0.3 * normal(4, 3, D), least=np.full(4, -2.0),
            most=np.full(4, 0.5), first=np.arange(4) > 1, half=0.2,
            ends=generator.random((2, 4, 3, D)) < [[[[0.3]]], [[[0.0]]]]),
        "layer_scale": lambda: case(normal(B, N, D), normal(D)),
        "swiglu": lambda: case(normal(B, N, D), normal(B, N, D)),
        "dino_loss": lambda: case(normal(B, 4, K), teacher=generator.dirichlet(np.ones(K), (B, 2)), temperature=0.5),
        "similarity": lambda: case(normal(B, D), normal(K, D), normal(1)),
        "contrastive_loss": lambda: case(normal(N, N)),
        "cross_entropy, labels": lambda: case(normal(B, K), targets=generator.integers(0, K, B)),
        "cross_entropy, smoothed": lambda: case(
            normal(B, K), targets=generator.dirichlet(np.ones(K), B), label_smoothing=0.1),
        "distillation": lambda: case(normal(B, K), teacher=normal(B, K), temperature=2.0),
        "batch_norm": lambda: case(normal(B, K, 3, 5), normal(K), normal(K)),
        "batch_norm_running": lambda: case(
            normal(B, K, 3, 5), normal(K), normal(K), mean=normal(K), variance=normal(K) ** 2),
        "group_norm": lambda: case(normal(B, D, 3, 5), normal(D), normal(D), num_groups=H),
        "zero_pad2d": lambda: case(normal(B, K, 3, 5), padding=(0, 1, 2, 3)),
        "standardize_weight": lambda: case(normal(K, 3, 3, 2)),
        "standardize_weight_original": lambda: case(normal(K, 3, 3, 2)),
        "conv2d": lambda: case(normal(B, 3, 6, 5), normal(K, 3, 3, 2), normal(K), stride=(2, 1), padding=1),
        "conv2d, groups": lambda: case(normal(B, K, 5, 4), normal(6, 2, 3, 3), padding=(0, 1), groups=2),
        "conv2d, depthwise": lambda: case(normal(B, K, 5, 4), normal(K, 1, 3, 3), padding=1, groups=K),
        "conv_transpose2d": lambda: case(normal(B, 3, 4, 5), normal(3, K, 3, 2), normal(K), stride=(3, 2)),
        "resize_bilinear": lambda: case(normal(B, K, 3, 5), size=(7, 4)),
        "pixel_cross_entropy": lambda: case(
            normal(B, K, 3, 5), labels=np.where(generator.random((B, 3, 5)) < 0.3, 255, 2)),
        "dot_products": lambda: case(normal(B, N, D), normal(B, K, D)),
        "max_pool2d": lambda: case(apart(B, 3, 7, 5), kernel_size=3, stride=2, padding=1),
        "avg_pool2d": lambda: case(normal(B, 3, 7, 5), kernel_size=(3, 2), stride=2, padding=1),
        "global_avg_pool2d": lambda: case(normal(B, K, 3, 5)),
        "relu": lambda: case(apart(B, N, D)),
        "scale_channels": lambda: case(normal(B, K, 3, 5), normal(B, K)),
        "to_windows": lambda: case(normal(B, 5, 7, K), window=3, shift=1),
        "from_windows": lambda: case(normal(9 * B, 6, K), sides=(5, 7), window=(2, 3), shift=1),
        "merge_patches": lambda: case(normal(B, 5, 4, K)),
        "relative_bias": lambda: case(normal(35, H), sides=(3, 4)),
        "relative_bias, smaller grid": lambda: case(normal(35, H), sides=(3, 4), grid=(2, 3)),
    }  # fmt: skip
    drawn = []
    for name in cases if only is None else [only]:
        generator = Key(seed, path=f"case {name}").generator()
        inputs, options = cases[name]()
        operation = getattr(F, name.partition(",")[0])
        forward = stack_results(operation) if name in MULTIPLE_RESULTS else operation
        drawn.append((name, partial(forward, **options), operation.backward, inputs))
    return drawn
