"""A model on the device, where biases, drop path and sums are fused, trains as on the CPU."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from tinyvit import Context, Key, ViTConfig, nn
from tinyvit import functional as F
from tinyvit.backend import to_device, to_numpy
from tinyvit.models import CoAtNetConfig, SwinConfig, build
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
CTX = Context(training=True, key=Key(1, 0))


def redrawn(device, config=CONFIG, precision=None):
    model, draws = build(config, device=device, precision=precision), np.random.default_rng(0)
    parameters = {name: 0.2 * draws.normal(size=p.shape) for name, p in model.named_parameters()}
    model.load_state_dict(model.state_dict() | parameters)
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
        {"config": SWIN},
        {"config": SWIN, "frozen": "*.bias"},
        {"config": COATNET},
    ],
    ids=["plain", "accumulated", "frozen", "no bias", "dropout", "gelu_tanh", "swin", "swin, no bias", "coatnet"],
)
def test_a_step_has_the_gradients_that_it_has_on_the_cpu(cupy, options):
    assert_close(gradients_of_a_step("cuda", **options), gradients_of_a_step("cpu", **options), 1e-4)


@pytest.mark.parametrize("config, name", [(SWIN, "layers.0.blocks.1"), (COATNET, "stages.1.blocks.1")])
def test_blocks_of_swin_and_coatnet_leave_both_biases_to_sums_and_an_observer_gets_finished_values(cupy, config, name):
    heard = []
    for device in ("cpu", "cuda"):
        model, values = redrawn(device, config), {}
        observer = SimpleNamespace(value=lambda path, y, values=values: values.update({path: to_numpy(y)}))
        parts = [part for part, _ in model.trunk.parts()]
        _, caches = model.trunk(to_device(IMAGES, device), replace(CTX, observer=observer))
        fused = [isinstance(c, FinishedCache) for c in (caches[parts.index(name)].norm2, caches[parts.index(name)].sum)]
        assert fused == [device == "cuda"] * 2
        heard.append(values)
    assert heard[0].keys() == heard[1].keys() > {f"{name}.attn.proj", f"{name}.mlp.fc2", f"{name}.drop_path2"}
    assert_close(heard[1], heard[0], 1e-4)


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
@pytest.mark.parametrize(
    "config, ctx",
    [(CONFIG, CTX), (CONFIG, None), (replace(CONFIG, drop_rate=0.2), CTX), (replace(CONFIG, positions="rope"), CTX)],
    ids=["drop path", "inference", "dropout", "rope"],
)
def test_blocks_in_turn_have_the_bits_of_blocks_one_by_one(cupy, config, ctx, precision):
    model = redrawn("cuda", replace(config, depth=3), precision)
    wanted = bits(model, one_by_one, ctx)
    assert_same_bits(bits(model, stacked, ctx), wanted)
    assert_same_bits(bits(model, stacked, replace(ctx or Context(), recompute=True)), wanted)
    model.freeze("blocks.1.mlp.fc2.bias")
    assert_same_bits(bits(model, stacked, ctx), bits(model, one_by_one, ctx))


def test_nothing_of_a_call_stays_in_a_stack(cupy):
    """Two forwards and then their backwards, as threads may order them."""
    model, other = redrawn("cuda"), replace(CTX, key=Key(2, 7))

    def during_another(model, x, dy, ctx):
        y, cache = model.encode(x, ctx)
        bits(model, stacked, other, seed=1)
        return y, model.encode.backward(dy, cache)

    assert_same_bits(bits(model, during_another, CTX), bits(model, one_by_one, CTX))


def test_a_block_leaves_its_sum_only_to_a_block_that_begins_with_a_layer_norm(cupy):
    model = redrawn("cuda", replace(CONFIG, depth=4))
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


def test_the_parts_above_frozen_ones_and_features_have_the_bits_of_the_whole_model(cupy):
    model, images = redrawn("cuda"), to_device(IMAGES, "cuda")
    wanted, cache = model(images, CTX)
    logits, above = model.forward_above(images, 2, CTX)
    np.testing.assert_array_equal(logits.get(), wanted.get())
    gradients = []
    for backward, c in ((model.backward, cache), (model.backward_above, above)):
        model.zero_grad()
        backward(to_device(np.cos(np.arange(18)).reshape(6, 3).astype("float32"), "cuda"), c)
        gradients.append(to_numpy(model.blocks[1].mlp.fc2.bias.grad).copy())
    np.testing.assert_array_equal(*gradients)
    assert gradients[0].all()
    tokens = model.features(images, 1)
    np.testing.assert_array_equal(model.features(images, 2).get(), model.blocks[1](tokens)[0].get())


def test_an_observer_of_a_stack_gets_what_blocks_one_by_one_tell_it(cupy):
    heard, model = [], redrawn("cuda")
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
