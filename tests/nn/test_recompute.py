import copy
from collections import Counter
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import images_for, redrawn, seeds, vits

import tinyvit
from tinyvit import Context, Key, ViT, ViTConfig, gradcheck, kernels, nn
from tinyvit.nn.recompute import RecomputedCache

CONFIG = ViTConfig(8, 4, 2, 5, 12, 3, 3, drop_rate=0.3, attn_drop_rate=0.2, drop_path_rate=0.4)
DROPPING = Context(training=True, key=Key(0, step=3))


def vit(dtype="float64", **fields):
    return redrawn(ViT(replace(CONFIG, **fields), dtype=dtype))


def images(dtype="float64", count=4):
    return np.random.default_rng(0).standard_normal((count, 2, 8, 8)).astype(dtype)


def run(model, x, ctx):
    """Logits, gradient of the images, all gradients of the parameters, and the cache."""
    model.zero_grad()
    logits, cache = model(x, ctx)
    return logits, model.backward(np.cos(5 * logits), cache), model.storage.grad.copy(), cache


def assert_same_bits(got, expected):
    for x, want in zip(got, expected, strict=True):
        np.testing.assert_array_equal(x, want, strict=True)


@given(model=vits(), seed=seeds(), training=st.booleans())
def test_every_kind_of_vit_gets_the_same_bits_with_recomputation_as_without(model, seed, training):
    x, ctx = images_for(model, seed, 2), Context(training=training, key=Key(seed))
    *got, cache = run(model, x, replace(ctx, recompute=True))
    *expected, _ = run(model, x, ctx)
    assert_same_bits(got, expected)
    assert all(type(block) is RecomputedCache for block in cache.blocks)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_dropout_and_stochastic_depth_draw_the_same_again(dtype):
    model, x = vit(dtype), images(dtype)
    assert_same_bits(run(model, x, replace(DROPPING, recompute=True))[:3], run(model, x, DROPPING)[:3])
    assert (run(model, x, None)[2] != run(model, x, DROPPING)[2]).any()


def test_inference_and_no_context_work_too():
    model, x = vit(), images()
    expected = run(model, x, None)[:3]
    assert_same_bits(run(model, x, Context(training=False, recompute=True))[:3], expected)
    tokens, cache = nn.with_recompute(model.blocks[0], np.ones((1, 5, 12)), ctx=None)
    assert not isinstance(cache, RecomputedCache) and tokens.shape == (1, 5, 12)


@pytest.mark.parametrize("forward_level", kernels.available())
@pytest.mark.parametrize("backward_level", kernels.available())
def test_recomputation_uses_the_kernels_of_the_forward(forward_level, backward_level):
    model, x = redrawn(ViT(replace(CONFIG, embed_dim=48, mlp_ratio=4.0)), std=0.5), images("float32", count=16)

    def bits(ctx):
        model.zero_grad()
        with kernels.using(forward_level):
            logits, cache = model(x, ctx)
        with kernels.using(backward_level):
            dimages = model.backward(np.cos(5 * logits), cache)
        return logits, dimages, model.storage.grad.copy()

    assert_same_bits(bits(replace(DROPPING, recompute=True)), bits(DROPPING))


def test_gradients_with_recomputation_match_the_complex_step():
    report = gradcheck.check_model(vit(), images(), ctx=replace(DROPPING, recompute=True))
    assert report.max_error < 1e-9, report


def test_frozen_parameters_stay_frozen():
    model, x = vit(), images()
    model.freeze("blocks.1.*")
    *got, _ = run(model, x, replace(DROPPING, recompute=True))
    assert_same_bits(got, run(model, x, DROPPING)[:3])
    assert not model.blocks[1].mlp.fc1.weight.grad.any() and model.blocks[0].mlp.fc1.weight.grad.any()


class Listener:
    def __init__(self):
        self.values, self.gradients = [], []

    def value(self, path, y):
        self.values.append((path, y))

    def gradient(self, path, dy, dx):
        self.gradients.append((path, dy, dx))


def test_an_observer_gets_every_value_and_gradient_once_as_without_recomputation():
    model, x = vit(), images()
    heard = []
    for recompute in (True, False):
        listener = Listener()
        run(nn.watch(model, listener), x, replace(DROPPING, recompute=recompute, observer=listener))
        heard.append(listener)
    again, plain = heard
    paths = Counter(path for path, _ in model.named_modules())
    assert Counter(path for path, _ in again.values) == Counter(path for path, *_ in again.gradients) == paths
    for (path, *arrays), (other, *expected) in zip(
        again.values + again.gradients, plain.values + plain.gradients, strict=True
    ):
        assert path == other
        assert_same_bits(arrays, expected)


def test_the_cache_inside_a_recomputed_block_can_be_read():
    model, x = vit(), images()
    _, cache = model(x, replace(DROPPING, recompute=True))
    _, plain = model(x, DROPPING)
    for got, want in zip(cache.blocks, plain.blocks):
        np.testing.assert_array_equal(got.attn.heads.probs, want.attn.heads.probs)
        np.testing.assert_array_equal(got.mlp.fc1.x, want.mlp.fc1.x)
        np.testing.assert_array_equal(got.drop_path1.mask, want.drop_path1.mask)
    with pytest.raises(AttributeError, match="'BlockCache' object has no attribute 'probs'"):
        cache.blocks[0].probs  # noqa: B018


def test_only_the_inputs_are_kept():
    model, x = vit(), images()
    _, cache = model(x, Context(recompute=True))
    tokens, _ = model.embed(x)
    for block, c_block in zip(model.blocks, cache.blocks):
        (kept,) = c_block.inputs
        np.testing.assert_array_equal(kept, tokens)
        tokens, _ = block(tokens)


def test_without_caches_nothing_is_kept():
    model = vit()
    for ctx in (Context(recompute=True, keep_caches=False), Context(keep_caches=False)):
        assert nn.with_recompute(model.blocks[0], np.ones((1, 5, 12)), ctx=ctx)[1] is None
        assert model(images(), ctx)[1] is None


class CrossCache(NamedTuple):
    first: np.ndarray
    second: np.ndarray


class Cross(nn.Module):
    """Two arrays in, two out, and a count of its forwards."""

    calls = 0

    def forward(self, first, second, ctx=None):
        self.calls += 1
        return (first * second, first + second), CrossCache(first, second)

    def backward(self, dy, cache):
        (dproduct, dsum), (first, second) = dy, cache
        return dproduct * second + dsum, dproduct * first + dsum


def test_any_module_with_any_number_of_inputs_can_be_recomputed():
    module, (a, b, c, d) = Cross(), np.random.default_rng(0).standard_normal((4, 3))
    outputs, cache = nn.with_recompute(module, a, b, ctx=Context(recompute=True))
    assert_same_bits(outputs, (a * b, a + b))
    assert_same_bits(module.backward((c, d), nn.recompute_cache(cache)), (c * b + d, c * a + d))
    assert module.calls == 2


def test_a_cache_is_recomputed_only_when_it_is_read():
    module = Cross()
    _, cache = nn.with_recompute(module, np.ones(2), np.ones(2), ctx=Context(recompute=True))
    copied = copy.copy(cache)
    assert not hasattr(cache, "__array__") and repr(copied) and module.calls == 1
    np.testing.assert_array_equal(copied.first, np.ones(2))
    assert module.calls == 2


def test_reference_around_the_backward_does_not_affect_the_recomputed_forward():
    seen = []

    class Level(nn.Module):
        def forward(self, x, ctx=None):
            seen.append(kernels.level())
            return x, (x,)

        def backward(self, dy, cache):
            seen.append(kernels.level())
            return dy

    module = Level()
    with kernels.using("numpy"):
        _, cache = nn.with_recompute(module, np.ones(2), ctx=Context(recompute=True))
    with tinyvit.reference():
        module.backward(np.ones(2), nn.recompute_cache(cache))
    assert seen == ["numpy", "numpy", "reference"]
