from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from strategies import images_for, redrawn, seeds, vits

from tinyvit import Context, Key, ViT, ViTConfig, kernels, nn

CONFIG = ViTConfig(8, 4, in_chans=2, num_classes=5, embed_dim=12, depth=2, num_heads=3)


class Recorder:
    def __init__(self):
        self.values, self.gradients = {}, {}

    def value(self, path, y):
        self.values[path] = y

    def gradient(self, path, dy, dx):
        self.gradients[path] = dy, dx


def run(model, x, ctx=None):
    """The output, the gradient of the input, and all gradients of the parameters."""
    model.zero_grad()
    y, cache = model(x, ctx)
    return y, model.backward(np.cos(5 * y), cache), model.storage.grad.copy()


@pytest.mark.parametrize("level", kernels.available())
@given(model=vits(), seed=seeds())
def test_a_watched_model_computes_the_same_bits(level, model, seed):
    x, recorder = images_for(model.to(dtype="float32"), seed, 2).astype("float32"), Recorder()
    with kernels.using(level):
        plain = run(model, x)
        watched = run(nn.watch(model, recorder), x, Context(observer=recorder))
    for got, expected in zip(watched, plain):
        np.testing.assert_array_equal(got, expected)
    assert set(recorder.values) == set(recorder.gradients) == {path for path, _ in model.named_modules()}


@given(model=vits(), seed=seeds())
def test_the_gradient_of_a_module_is_what_its_input_gets(model, seed):
    recorder, x = Recorder(), images_for(model, seed, 2)
    y, cache = model(x)
    dimages = nn.watch(model, recorder).backward(np.cos(5 * y), cache)
    np.testing.assert_array_equal(recorder.gradients[""][1], dimages)
    for i in range(len(model.blocks)):
        branch, norm, mlp = (recorder.gradients[f"blocks.{i}{part}"] for part in (".attn", ".norm2", ".mlp"))
        dblock, _ = recorder.gradients[f"blocks.{i}"]
        np.testing.assert_array_equal(norm[0], mlp[1])
        np.testing.assert_allclose(branch[0], dblock + norm[1], rtol=1e-12, atol=1e-12)


def test_values_and_gradients_have_the_path_of_their_module():
    model, recorder = redrawn(ViT(replace(CONFIG, head_hidden=6, positions="learned_2d"), dtype="float64")), Recorder()
    logits, cache = model(np.random.default_rng(0).standard_normal((4, 2, 8, 8)), Context(observer=recorder))
    dimages = nn.watch(model, recorder).backward(np.ones_like(logits), cache)
    np.testing.assert_array_equal(recorder.values[""], logits)
    np.testing.assert_array_equal(recorder.gradients[""][1], dimages)
    assert recorder.values["blocks.1.attn.qkv"].shape == (4, 5, 36)
    assert recorder.gradients["blocks.1"][0].shape == (4, 5, 12)


def test_the_model_itself_stays_as_it_is_and_shares_its_memory():
    model, recorder = redrawn(ViT(CONFIG, dtype="float64")), Recorder()
    x = np.random.default_rng(0).standard_normal((2, 2, 8, 8))
    before = {path: dict(vars(module)) for path, module in model.named_modules()}
    watched = nn.watch(model, recorder)
    run(model, x)
    assert not recorder.gradients
    assert all(vars(module) == before[path] for path, module in model.named_modules())
    assert [*watched.parameters()] == [*model.parameters()] and type(watched) is ViT
    assert {path for path, _ in watched.named_modules()} == set(before)


def test_on_the_cpu_no_backward_of_a_module_is_wrapped():
    model = nn.Block(12, 3, 24).materialize(device="cpu")
    assert not any("backward" in vars(module) for _, module in model.named_modules())


def test_a_module_that_is_used_twice_is_watched_once():
    shared = nn.Linear(4, 4)

    class Twice(nn.Module):
        def __init__(self):
            self.both = [shared, shared]

    watched = nn.watch(Twice().materialize(), Recorder())
    assert watched.both[0] is watched.both[1] and watched.both[0] is not shared


@pytest.mark.parametrize("place", ["second", "last", "name"])
def test_a_context_is_found_in_any_argument(place):
    positions = nn.positions.LearnedPositions((2, 2), 8).materialize()
    recorder, tokens = Recorder(), np.ones((1, 5, 8), "float32")
    ctx = Context(observer=recorder, keep_caches=False)
    call = {
        "second": lambda: positions(tokens, ctx, (2, 2)),
        "last": lambda: positions(tokens, ctx),
        "name": lambda: positions(tokens, grid=(2, 2), ctx=ctx),
    }[place]
    y, cache = call()
    np.testing.assert_array_equal(recorder.values[""], y)
    assert cache is None


@given(seed=seeds())
def test_recomputed_blocks_are_watched_like_others(seed):
    model = redrawn(ViT(replace(CONFIG, drop_rate=0.3), dtype="float64"))
    ctx, seen = Context(training=True, key=Key(seed)), []
    for recompute in (True, False):
        recorder = Recorder()
        run(nn.watch(model, recorder), images_for(model, seed, 2), replace(ctx, recompute=recompute))
        seen.append(recorder.gradients)
    for path, pair in seen[0].items():
        for got, expected in zip(pair, seen[1][path]):
            np.testing.assert_array_equal(got, expected)
