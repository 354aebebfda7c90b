"""A model on the device, where biases, drop path and sums are fused, trains as on the CPU."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from tinyvit import Context, Key, ViT, ViTConfig
from tinyvit import functional as F
from tinyvit.backend import to_device, to_numpy
from tinyvit.nn.layers import FinishedCache
from tinyvit.optim import SGD
from tinyvit.training import train_step

CONFIG = ViTConfig(img_size=8, patch_size=4, num_classes=3, embed_dim=24, depth=2, num_heads=3, drop_path_rate=0.5)
IMAGES = np.random.default_rng(0).normal(size=(6, 3, 8, 8)).astype("float32")
LABELS = np.arange(6) % 3
CTX = Context(training=True, key=Key(1, 0))


def redrawn(device, config=CONFIG, precision=None):
    model, draws = ViT(config, device=device, precision=precision), np.random.default_rng(0)
    model.load_state_dict({name: 0.2 * draws.normal(size=p.shape) for name, p in model.named_parameters()})
    return model


def gradients_of_a_step(device, config=CONFIG, precision=None, frozen=None, ctx=CTX, **options):
    model = redrawn(device, config, precision)
    if frozen:
        model.freeze(frozen)
    images, labels = to_device(IMAGES, device), to_device(LABELS, device)
    train_step(model, SGD(model, lr=0.1), images, labels, ctx, **options)
    return {name: to_numpy(p.grad).copy() for name, p in model.named_parameters()}


def assert_close(got, wanted, bound):
    for name, want in wanted.items():
        assert abs(got[name] - want).max() <= bound * max(1e-2, abs(want).max()), name


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"accumulate": 2},
        {"frozen": "blocks.1.*"},
        {"frozen": "*.bias"},
        {"config": replace(CONFIG, drop_rate=0.2)},
        {"config": replace(CONFIG, activation="gelu_tanh", qkv_bias=False)},
    ],
    ids=["plain", "accumulated", "frozen", "no bias", "dropout", "gelu_tanh"],
)
def test_a_step_has_the_gradients_that_it_has_on_the_cpu(cupy, options):
    assert_close(gradients_of_a_step("cuda", **options), gradients_of_a_step("cpu", **options), 1e-4)


def test_two_steps_have_the_same_bits_and_with_recomputation_too(cupy):
    first, second = (gradients_of_a_step("cuda") for _ in range(2))
    recomputed = gradients_of_a_step("cuda", ctx=replace(CTX, recompute=True))
    for name, gradient in first.items():
        np.testing.assert_array_equal(second[name], gradient)
        np.testing.assert_array_equal(recomputed[name], gradient)


def test_a_backward_outside_a_step_leaves_no_sum(cupy):
    wanted, model = gradients_of_a_step("cuda"), redrawn("cuda")
    logits, cache = model(to_device(IMAGES, "cuda"), CTX)
    _, c_loss = F.cross_entropy(logits, to_device(LABELS, "cuda"))
    model.backward(F.cross_entropy_backward(1.0, c_loss), cache)
    assert_close({name: to_numpy(p.grad) for name, p in model.named_parameters()}, wanted, 1e-6)


def test_an_observer_gets_finished_values_and_changes_no_bit(cupy):
    values = {}
    observer, model = SimpleNamespace(value=lambda path, y: values.update({path: to_numpy(y)})), redrawn("cuda")
    block, x = model.blocks[1], to_device(np.random.default_rng(1).normal(size=(2, 5, 24)).astype("float32"), "cuda")
    y, cache = block(x, replace(CTX, observer=observer))
    fused, c_fused = block(x, CTX)
    assert isinstance(c_fused.norm2, FinishedCache) and isinstance(cache.norm2, FinishedCache)
    np.testing.assert_array_equal(fused.get(), y.get())
    np.testing.assert_array_equal(c_fused.norm2.xhat.get(), cache.norm2.xhat.get())
    attended = values["blocks.1.attn.proj"]
    np.testing.assert_allclose(attended, to_numpy(block.attn(block.norm1(x)[0])[0]), rtol=1e-4, atol=1e-5)
