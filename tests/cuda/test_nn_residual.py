"""A model on the device, where biases, drop path and sums are fused, trains as on the CPU."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from strategies import redrawn

from tinyvit import Context, Key, ViTConfig, nn
from tinyvit import functional as F
from tinyvit.backend import to_device, to_numpy
from tinyvit.models import BiTConfig, CoAtNetConfig, DeiTConfig, Dinov2Config, HybridConfig, SwinConfig, build
from tinyvit.nn.layers import FinishedCache, Unfinished
from tinyvit.optim import SGD
from tinyvit.training import train_step

CONFIG = ViTConfig(img_size=8, patch_size=4, num_classes=3, embed_dim=24, depth=2, num_heads=3, drop_path_rate=0.5)
SWIN = SwinConfig(
    img_size=8, num_classes=3, embed_dim=24, depths=(2, 1), num_heads=(3, 6), window_size=2, mlp_ratio=2.0,
    drop_path_rate=0.5,
)  # fmt: skip
COATNET = CoAtNetConfig(
    img_size=8, num_classes=3, stem_width=8, stem_stride=1, stages="CT", depths=(1, 2), widths=(8, 16), strides=(2, 2),
    head_dim=8, expansion=2.0, drop_path_rate=0.5,
)  # fmt: skip
IMAGES = np.random.default_rng(0).normal(size=(6, 3, 8, 8)).astype("float32")
LABELS = np.arange(6) % 3
SMALL = dict(img_size=8, num_classes=3)
VIT = SMALL | dict(embed_dim=24, depth=1, num_heads=3, patch_size=4)
OTHERS = {
    "rope": replace(CONFIG, positions="rope", head_hidden=5, global_pool="avg"), "deit": DeiTConfig(**VIT),
    "dinov2": Dinov2Config(**VIT, swiglu=True), "hybrid": HybridConfig(**VIT, backbone_width=4),
    "bit": BiTConfig(**SMALL, depths=(1, 1), width=4, num_groups=2),
}
CTX = Context(training=True, key=Key(1, 0))


def gradients_of_a_step(device, config=CONFIG, precision=None, frozen=None, ctx=CTX, **options):
    model = redrawn(build(config, device=device, precision=precision))
    if frozen:
        model.freeze(frozen)
    images, labels = to_device(IMAGES, device), to_device(LABELS, device)
    train_step(model, SGD(model, lr=0.1), images, labels, ctx, **options)
    return {name: to_numpy(p.grad).copy() for name, p in model.named_parameters()}


def assert_close(got, wanted, bound):
    for name, want in wanted.items():
        assert abs(got[name] - want).max() <= bound * max(1e-2, abs(want).max()), name


STEPS = {
    "plain": {}, "accumulated": {"accumulate": 2}, "frozen": {"frozen": "blocks.1.*"}, "no bias": {"frozen": "*.bias"},
    "dropout": {"config": replace(CONFIG, drop_rate=0.2)},
    "gelu_tanh": {"config": replace(CONFIG, activation="gelu_tanh", qkv_bias=False)},
    "swin": {"config": SWIN}, "swin, no bias": {"config": SWIN, "frozen": "*.bias"}, "coatnet": {"config": COATNET},
    **{name: {"config": config} for name, config in OTHERS.items()},
}  # fmt: skip


@pytest.mark.parametrize("options", STEPS.values(), ids=STEPS)
def test_a_step_has_the_gradients_that_it_has_on_the_cpu(cupy, options):
    assert_close(gradients_of_a_step("cuda", **options), gradients_of_a_step("cpu", **options), 1e-4)


def stacked(model, x, dy, ctx):
    """The encoder's output and the gradient of its input, each block leaving its sum to the next."""
    y, cache = model.encode(x, ctx)
    return y, model.encode.backward(dy, cache)


def one_by_one(model, x, dy, ctx):
    caches, norm = [], model.encode.norm
    for block in model.blocks:
        x, cache = block(x, ctx)
        caches.append(cache)
    y, c_norm = norm(x, ctx)
    dx = norm.backward(dy, c_norm)
    for block, cache in zip(reversed(model.blocks), reversed(caches)):
        dx = block.backward(dx, cache)
    return y, dx


def bits(model, run, ctx, seed=0):
    """As numbers: output, gradient of the input, and all gradients of parameters, which go to a buffer of their own."""
    x, dy = np.random.default_rng(seed).normal(size=(2, 4, 5, 24)).astype("float32")
    x, dy = (F.cast(to_device(array, "cuda"), model.storage.compute_dtype) for array in (x, dy))
    gradients = model.new_gradients()
    with model.gradients_into(gradients):
        y, dx = run(model, x, dy, ctx)
    return [to_numpy(array).astype("float32") for array in (y, dx, gradients)]


def assert_same_bits(got, wanted):
    for array, want in zip(got, wanted, strict=True):
        np.testing.assert_array_equal(array, want)


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("config, ctx", [
    (CONFIG, CTX), (CONFIG, None), (replace(CONFIG, drop_rate=0.2), CTX), (replace(CONFIG, positions="rope"), CTX),
], ids=["drop path", "inference", "dropout", "rope"])  # fmt: skip
def test_blocks_in_turn_have_the_bits_of_blocks_one_by_one(cupy, config, ctx, precision):
    model = redrawn(build(replace(config, depth=3), device="cuda", precision=precision))
    wanted = bits(model, one_by_one, ctx)
    assert_same_bits(bits(model, stacked, ctx), wanted)
    assert_same_bits(bits(model, stacked, replace(ctx or Context(), recompute=True)), wanted)
    model.freeze("blocks.1.mlp.fc2.bias")
    assert_same_bits(bits(model, stacked, ctx), bits(model, one_by_one, ctx))


def test_a_block_leaves_its_sum_only_to_a_block_that_begins_with_a_layer_norm(cupy):
    model = redrawn(build(replace(CONFIG, depth=4), device="cuda"))
    model.blocks[2].norm1 = nn.Identity()
    x = to_device(np.ones((2, 5, 24), "float32"), "cuda")
    y, (first, second, third, fourth) = nn.in_turn(model.blocks, x)
    assert isinstance(second.norm1, FinishedCache) and isinstance(fourth.norm1, FinishedCache)
    assert first.sum is None and third.sum is None
    assert isinstance(second.sum, FinishedCache) and isinstance(fourth.sum, FinishedCache) and y.shape == x.shape
    y, (*_, last) = nn.in_turn(model.blocks, x, then=model.encode.norm)
    assert isinstance(y, Unfinished) and last.sum is None
    assert not isinstance(nn.in_turn(model.blocks, x, then=model.pool)[0], Unfinished)
    assert_same_bits(bits(model, stacked, CTX), bits(model, one_by_one, CTX))
    assert isinstance(model.blocks[0](x, sum_later=True)[0], Unfinished)
    assert not isinstance(model.blocks[0](x)[0], Unfinished)


def test_an_observer_of_a_stack_gets_what_blocks_one_by_one_tell_it(cupy):
    heard, model = [], redrawn(build(CONFIG, device="cuda"))
    for run in (stacked, one_by_one):
        found = {}
        observer = SimpleNamespace(
            value=lambda path, y, found=found: found.setdefault(path, []).append(y.get()),
            gradient=lambda path, dy, dx, found=found: found[path].extend((dy.get(), dx.get())),
        )
        bits(nn.watch(model, observer), run, replace(CTX, observer=observer))
        found.pop("(encode)", None)
        heard.append(found)
    assert heard[0].keys() == heard[1].keys() == {path for path, _ in model.encode.named_modules()} - {""}
    assert {len(arrays) for arrays in heard[0].values()} == {3}
    for path, arrays in heard[0].items():
        assert_same_bits(arrays, heard[1][path])
