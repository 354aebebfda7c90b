"""float32 stays near float64, and its error is at most twice that of PyTorch's float32."""

from inspect import signature
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch.nn import functional as T
from torch_autograd import by_autograd, by_hand
from torch_vit import gradients_by_autograd, gradients_by_hand, redrawn_vit, rotated, torch_twin

from tinyvit import ViTConfig
from tinyvit import functional as F

pytestmark = pytest.mark.parity

OUTPUTS = {"result", "logits"}
ENTRIES = 100_000  # the minimum number of entries for an RMS error
B, N, D, H, K = 64, 65, 192, 3, 200
LARGE_B = 512
LABELS = np.arange(LARGE_B) % K


class Case(NamedTuple):
    """An operation on arrays N(0, scale²) of these shapes, large enough for the sums of a real training step.

    The first array has the mean `mean`. A gradient of few numbers, such as a bias's, is computed for `repeats` random
    inputs to collect `ENTRIES` numbers.
    """

    operation: Any
    function: Any
    shapes: list
    scales: tuple = (1.0,) * 4
    mean: float = 0.0
    repeats: int = 1
    options: Any = MappingProxyType({})


def cat(x, token):
    return torch.cat([token.expand(len(x), -1, -1), x], 1)


CASES = {
    "linear": Case(F.linear, T.linear, [(B, N, D), (4 * D, D)], scales=(1.0, D**-0.5)),
    "linear, back to D": Case(F.linear, T.linear, [(B, N, 4 * D), (D, 4 * D)], scales=(1.0, (4 * D) ** -0.5)),
    "linear, bias of tokens": Case(F.linear, T.linear, [(B, 16, 1), (6250, 1), (6250,)], repeats=16),
    "linear, bias of features": Case(F.linear, T.linear, [(LARGE_B, 1), (6250, 1), (6250,)], repeats=16),
    "layernorm": Case(F.layernorm, lambda x, w, b: T.layer_norm(x, w.shape, w, b, 1e-6), [(B, N, D), (D,), (D,)]),
    "layernorm, far from zero": Case(
        F.layernorm, lambda x, w, b: T.layer_norm(x, w.shape, w, b, 1e-6), [(B, N, D), (D,), (D,)], mean=10.0
    ),
    "layernorm, weight and bias": Case(
        F.layernorm, lambda x, w, b: T.layer_norm(x, w.shape, w, b, 1e-6), [(B, 4, 6250), (6250,), (6250,)], repeats=16
    ),
    "conv2d": Case(
        F.conv2d, lambda x, w: T.conv2d(x, w, None, 1, 1), [(16, 64, 16, 16), (192, 64, 3, 3)], scales=(1.0, 1 / 24),
        options={"padding": 1},
    ),
    "conv2d, stride": Case(
        F.conv2d, lambda x, w: T.conv2d(x, w, None, 2, 1), [(16, 64, 17, 17), (192, 64, 3, 3)], scales=(1.0, 1 / 24),
        options={"stride": 2, "padding": 1},
    ),
    "conv2d, depthwise": Case(
        F.conv2d, lambda x, w: T.conv2d(x, w, None, 1, 2, 1, 1024), [(16, 1024, 6, 6), (1024, 1, 5, 5)], repeats=4,
        scales=(1.0, 1 / 5), options={"padding": 2, "groups": 1024},
    ),
    "conv2d, bias": Case(F.conv2d, T.conv2d, [(16, 1, 4, 4), (6250, 1, 1, 1), (6250,)], repeats=16),
    "avg_pool2d": Case(
        F.avg_pool2d, lambda x: T.avg_pool2d(x, 3, 2, 1), [(B, H, 65, 65)],
        options={"kernel_size": 3, "stride": 2, "padding": 1},
    ),
    "max_pool2d": Case(
        F.max_pool2d, lambda x: T.max_pool2d(x, 3, 2, 1), [(B, H, 65, 65)],
        options={"kernel_size": 3, "stride": 2, "padding": 1},
    ),
    "global_avg_pool2d": Case(F.global_avg_pool2d, lambda x: x.mean((2, 3)), [(B, D, 8, 8)]),
    "softmax": Case(F.softmax, lambda x: torch.softmax(x, -1), [(B, H, N, N)]),
    "attention": Case(F.attention, T.scaled_dot_product_attention, [(B, H, N, D // H)] * 3),
    "attention, bias": Case(
        F.attention, T.scaled_dot_product_attention, [*[(LARGE_B, 2, N, 8)] * 3, (2, N, N)], repeats=12
    ),
    "tiled_attention": Case(
        F.tiled_attention, T.scaled_dot_product_attention, [(B, H, N, D // H)] * 3, options={"tile": 16}
    ),
    "tiled_attention, many tokens": Case(
        F.tiled_attention, T.scaled_dot_product_attention, [(1, H, 1025, D // H)] * 3
    ),
    "tiled_attention, bias": Case(
        F.tiled_attention, T.scaled_dot_product_attention, [*[(LARGE_B, 2, N, 8)] * 3, (2, N, N)], repeats=12,
        options={"tile": 16},
    ),
    "gelu": Case(F.gelu, T.gelu, [(B, N, 4 * D)]),
    "gelu_tanh": Case(F.gelu_tanh, lambda x: T.gelu(x, approximate="tanh"), [(B, N, 4 * D)]),
    "tanh": Case(F.tanh, torch.tanh, [(B, N, 4 * D)]),
    "rope": Case(F.rope, lambda x: rotated(x, (8, 8)), [(B, H, N, D // H)], options={"grid": (8, 8)}),
    "add_positions": Case(F.add_positions, torch.add, [(LARGE_B, N, D), (1, N, D)], repeats=9),
    "prepend_token": Case(F.prepend_token, cat, [(LARGE_B, 1, 6250), (1, 1, 6250)], repeats=16),
    "pool_mean": Case(F.pool_mean, lambda x: x[:, 1:].mean(1), [(B, N, D)]),
    "cross_entropy": Case(
        F.cross_entropy, lambda x: T.cross_entropy(x, torch.tensor(LABELS)), [(LARGE_B, K)], options={"targets": LABELS}
    ),
    "cross_entropy, smoothed": Case(
        F.cross_entropy, lambda x: T.cross_entropy(x, torch.tensor(LABELS), label_smoothing=0.1), [(LARGE_B, K)],
        options={"targets": LABELS, "label_smoothing": 0.1},
    ),
}  # fmt: skip


def measured(case, seed=0):
    """The result and the gradients by name: float32 by hand, float32 by PyTorch, float64 by PyTorch."""
    generator = np.random.default_rng(seed)
    arrays = [np.float32(s) * generator.standard_normal(shape, "float32") for shape, s in zip(case.shapes, case.scales)]
    arrays[0] += np.float32(case.mean)
    y, _ = case.operation(*arrays, **case.options)
    dy = generator.standard_normal(y.shape, "float32") if y.ndim else np.float32(1)
    doubles = [x.astype("float64") for x in arrays]
    names = "result", *(f"d{argument}" for argument in signature(case.operation).parameters)
    return (
        dict(zip(names, by_hand(case.operation, arrays, dy, **case.options))),
        dict(zip(names, by_autograd(case.function, arrays, dy))),
        dict(zip(names, by_autograd(case.function, doubles, dy.astype("float64")))),
    )


def assert_near(got, exact):
    """The bounds of the project, for outputs and for gradients."""
    assert got.keys() == exact.keys()
    for name, want in exact.items():
        largest = np.abs(want).max()
        bound = {"rtol": 1.3e-6, "atol": 1e-5} if name in OUTPUTS else {"rtol": 2e-3, "atol": 1e-5 * largest}
        np.testing.assert_allclose(got[name], want, **bound, err_msg=name)


def squared_errors(got, by_torch, exact):
    """[entries, the sum of our squared errors, and of PyTorch's] of every gradient, in units of its mean square."""
    errors = {}
    for name in exact.keys() - OUTPUTS:
        want = exact[name]
        ours, torchs = (np.square(x[name] - want).sum() / np.square(want).mean() for x in (got, by_torch))
        errors[name] = np.array([want.size, ours, torchs])
    return errors


def assert_at_most_twice_as_far(errors):
    """Every gradient that `errors` has ENTRIES of: our RMS error is at most twice PyTorch's."""
    judged = {name: np.sqrt([ours, theirs] / n) for name, (n, ours, theirs) in errors.items() if n >= ENTRIES}
    assert judged
    too_far = [
        f"{name}: RMS error {ours:.1e}, PyTorch's {theirs:.1e}, {ours / theirs:.1f} times as much"
        for name, (ours, theirs) in judged.items()
        if ours > 2 * theirs
    ]
    assert not too_far, "\n".join(too_far)


@pytest.mark.parametrize("name", CASES)
def test_a_float32_operation_is_near_float64_and_its_gradients_err_at_most_twice_as_much_as_torchs(name):
    errors = []
    for seed in range(CASES[name].repeats):
        got, by_torch, exact = measured(CASES[name], seed)
        if seed == 0:
            assert_near(got, exact)
        errors.append(squared_errors(got, by_torch, exact))
    assert_at_most_twice_as_far({gradient: sum(draw[gradient] for draw in errors) for gradient in errors[0]})


def test_a_float32_vit_is_near_float64_and_its_gradients_err_at_most_twice_as_much_as_torchs():
    """192 wide and 6 deep."""
    model = redrawn_vit(ViTConfig(embed_dim=D, depth=6, num_heads=H, mlp_ratio=4.0), dtype="float32")
    generator = np.random.default_rng(0)
    images, dlogits = (generator.standard_normal(shape, "float32") for shape in ((B, 3, 32, 32), (B, 10)))
    got = gradients_by_hand(model, images, dlogits)
    by_torch, exact = (gradients_by_autograd(torch_twin(model, dtype), images, dlogits) for dtype in (None, "float64"))
    assert_near(got, exact)
    errors = squared_errors(got, by_torch, exact)
    assert_at_most_twice_as_far(errors | {"all gradients together": sum(errors.values())})
