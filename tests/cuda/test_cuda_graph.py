"""A step that is replayed as a CUDA graph has the bits of one that is launched kernel by kernel."""

import gc
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest
from steps import advance
from strategies import redrawn

from tinyvit import Context, Key, ViT, ViTConfig, backend, optim
from tinyvit.models import ResNetConfig, SwinConfig, build
from tinyvit.training import PRESETS, cuda_graph, train_step
from tinyvit.training.config import check_device_options, switch
from tinyvit.training.cuda_graph import StepGraphs, allocate
from tinyvit.training.step import CaptureError
from tinyvit.training.trainer import Trainer

VIT = ViTConfig(img_size=8, patch_size=4, num_classes=4, embed_dim=32, depth=2, num_heads=2, drop_rate=0.1,
                attn_drop_rate=0.1, drop_path_rate=0.3)  # fmt: skip
FUSED = replace(VIT, attn_drop_rate=0.0, drop_rate=0.0)
CONVNET = ResNetConfig(img_size=8, num_classes=4, depths=(1, 1), width=8)
DIGITS = PRESETS["digits"]
TINY = replace(DIGITS, model=replace(FUSED, in_chans=1, num_classes=10, embed_dim=16, depth=1, drop_rate=0.1),
               epochs=1, device="cuda", optim=replace(DIGITS.optim, name="adamw", lr=3e-3))  # fmt: skip
STEPS = 5


def trained(model, make_optimizer=optim.AdamW, replay=False, sizes=(6,) * STEPS, **options):
    """(results of each step, weights, optimizer's state) after steps with batches of these sizes."""
    draw, optimizer, results = np.random.default_rng(1), make_optimizer(model, 1e-3), []
    config = model.config
    with model.storage.on_device():
        run = partial(StepGraphs(model.device).run, "step") if replay else None
        for number, size in enumerate(sizes):
            images = draw.standard_normal((size, config.in_chans, config.img_size, config.img_size), "float32")
            arrays = (backend.to_device(x, "cuda") for x in (images, draw.integers(0, config.num_classes, size)))
            optimizer.lr = 1e-3 * (number + 1)
            ctx = Context(training=True, key=Key(0), recompute=options.get("recompute", False))
            more = {name: value for name, value in options.items() if name != "recompute"}
            results.append(train_step(model, optimizer, *arrays, ctx, replay=run, **more))
    figures = [[float(x) for x in (r.loss, r.grad_norm, r.applied, *r.metrics.values())] for r in results]
    state = {name: array.tobytes() for name, array in optimizer.state_dict().items()}
    weights = {name: backend.to_numpy(array).tobytes() for name, array in model.state_dict().items()}
    return figures, weights, state


@pytest.mark.parametrize("precision", ["float32", "tf32", "bfloat16", "float16"])
@pytest.mark.parametrize("config", [VIT, FUSED, CONVNET], ids=["dropout", "fused", "running statistics"])
def test_replayed_steps_have_the_bits_of_launched_ones(cupy, precision, config):
    expected, got = (
        trained(redrawn(build(config, device="cuda", precision=precision)), replay=replay, clip_norm=0.5)
        for replay in (False, True)
    )
    assert got == expected
    assert len({tuple(figures) for figures in got[0]}) == STEPS, "every step has its own batch and masks"


@pytest.mark.parametrize("options", [
    dict(accumulate=2), dict(recompute=True), dict(clip_each=0.1), dict(sizes=(6, 4, 6, 6, 4, 4, 6)),
    dict(make_optimizer=partial(optim.SGD, momentum=0.9)), dict(make_optimizer=optim.Muon),
], ids=["accumulate", "recompute", "clip each", "two sizes", "SGD", "Muon"])  # fmt: skip
def test_so_they_have_however_a_step_is_made(cupy, options):
    expected, got = (trained(redrawn(ViT(VIT, device="cuda")), replay=replay, **options) for replay in (False, True))
    assert got == expected


def test_from_the_third_time_on_the_function_is_not_called_until_another_kind_frees_the_graphs(cupy):
    calls, graphs = [], StepGraphs("cuda:0")
    freed, pool = [], graphs.pool
    graphs.pool = SimpleNamespace(malloc=pool.malloc, free_all_blocks=lambda: freed.append(len(graphs.steps)))

    def double(batch, ctx):
        calls.append((kind, len(batch["x"])))
        return (2 * batch["x"],)

    for kind, size in zip("aaaaaabbba", (3, 4, 3, 3, 4, 4, 3, 3, 3, 3)):
        x = backend.to_device(np.full(size, float(len(calls)), "float32"), "cuda")
        (y,) = graphs.run(kind, double, {"x": x}, None)
        np.testing.assert_array_equal(y.get(), 2 * x.get())
    assert calls == [("a", 3), ("a", 4), ("a", 3), ("a", 4), ("b", 3), ("b", 3), ("a", 3)] and freed == [0] * 3


def memory_left_by_graphs(monkeypatch):
    """A list of how many bytes are left in the memory of graphs whenever it is freed, from here on."""
    left, free = [], cuda_graph.free

    def free_and_look(steps, pool):
        free(steps, pool)
        left.append(pool.total_bytes())

    monkeypatch.setattr(cuda_graph, "free", free_and_look)
    return left


def test_a_stream_that_was_not_drawn_from_before_is_refused(cupy):
    graphs, seen = StepGraphs("cuda:0"), []

    def draw(batch, ctx):
        seen.append(0)
        return (ctx.key.at(f"layer {len(seen)}").uniform((1, 1), cupy),)

    graphs.run(0, draw, {}, Context(training=True, key=Key(0, 0)))
    with pytest.raises(ValueError, match="the same .* streams at most; .*layer 2.* is new"):
        graphs.run(0, draw, {}, Context(training=True, key=Key(0, 1)))
    with pytest.raises(ValueError, match="streams of its own step 0, got .*step=5"):
        graphs.run(1, lambda batch, ctx: (replace(ctx.key, step=5).uniform((1, 1), cupy),), {},
                   Context(training=True, key=Key(0, 0)))  # fmt: skip


def test_what_cannot_be_captured_is_refused_and_the_stream_is_free_again(cupy):
    graphs, x = StepGraphs("cuda:0"), backend.to_device(np.ones((2, 2), "float32"), "cuda")
    graphs.run(0, lambda batch, ctx: (batch["x"] @ batch["x"],), {"x": x}, None)
    with pytest.raises(ValueError, match="can't be captured as a CUDA graph .*cuBLAS"):  # CuPy's product, not ours
        graphs.run(0, lambda batch, ctx: (batch["x"] @ batch["x"],), {"x": x}, None)
    graphs.run(2, lambda batch, ctx: (backend.to_device(np.ones(2), "cuda"),), {}, None)
    with pytest.raises(ValueError, match="captured as a CUDA graph .*H2D"):  # an upload
        graphs.run(2, lambda batch, ctx: (backend.to_device(np.ones(2), "cuda"),), {}, None)
    for _ in range(3):
        (y,) = graphs.run(1, lambda batch, ctx: (batch["x"] + 1,), {"x": x}, None)
    assert (y.get() == 2).all()


def test_where_memory_is_short_the_pool_frees_nothing(cupy, monkeypatch):
    def full(size):
        raise cupy.cuda.runtime.CUDARuntimeError(2)

    monkeypatch.setattr(cupy.cuda, "Memory", full)
    with pytest.raises(MemoryError, match="no memory for a CUDA graph"):
        allocate(cupy.cuda, 512)


def few_steps(config):
    """(losses, weights, average) after the steps of one short epoch."""
    trainer = Trainer(replace(config, images=100))
    with trainer.model.storage.on_device():
        losses = [float(advance(trainer, batch).loss) for batch in trainer.batches()]
    assert len(losses) >= 4 and (trainer.graphs is None or len(trainer.graphs.steps) >= 1)
    average = None if trainer.ema is None else trainer.ema.average.get().tobytes()
    return losses, trainer.model.storage.data.get().tobytes(), average


DIT = PRESETS["dit-digits"]
TRAININGS = {
    "classification": replace(TINY, optim=replace(TINY.optim, ema=0.9)),
    "some patches": replace(TINY, optim=replace(TINY.optim, keep_patches=0.5, keep_until=0.5)),
    "mae": switch(TINY, task="mae"),
    "diffusion": replace(DIT, model=replace(DIT.model, embed_dim=16, depth=1), epochs=1, device="cuda"),
    "swin": replace(TINY, architecture="swin", model=SwinConfig(
        img_size=8, patch_size=2, in_chans=1, embed_dim=16, depths=(2,), num_heads=(2,), window_size=2,
    )),
}  # fmt: skip


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=() if name in ("classification", "diffusion", "swin") else pytest.mark.full)
    for name in TRAININGS
])  # fmt: skip
def test_a_training_has_the_same_bits_and_frees_all_memory_of_graphs(cupy, name, monkeypatch):
    left = memory_left_by_graphs(monkeypatch)
    config = replace(TRAININGS[name], batch_size=16)
    expected, got = (few_steps(replace(config, cuda_graph=captured)) for captured in (False, True))
    gc.collect()
    assert got == expected and left and not any(left)


def test_where_a_capture_fails_auto_launches_the_kernels_one_by_one(cupy, monkeypatch):
    expected = few_steps(config := replace(TINY, batch_size=16, cuda_graph=False))
    for error in (CaptureError("no"), MemoryError("no")):
        monkeypatch.setattr(StepGraphs, "capture", mock.Mock(side_effect=error))
        with pytest.warns(UserWarning, match="no; from here on kernels are launched one by one"):
            assert few_steps(replace(config, cuda_graph="auto")) == expected
        with pytest.raises(type(error), match="no"):
            few_steps(replace(config, cuda_graph=True))


def test_where_steps_cannot_be_captured_the_training_is_refused(cupy):
    check_device_options(TINY, "cpu", 2, "reference")
    for ranks, kernels, reason in ((1, "reference", "not for --kernels reference"), (2, None, "for one process")):
        with pytest.raises(ValueError, match=f"--cuda-graph is {reason}"):
            check_device_options(replace(TINY, cuda_graph=True), "cuda:0", ranks, kernels)
    small = dict(optim=replace(TINY.optim, small_sizes=(4,), small_until=(0.5,)),
                 model=replace(TINY.model, dynamic_img_size=True))  # fmt: skip
    for changes, reason in (
        (dict(device="cpu"), "needs a GPU"), (dict(precision="float64"), "is not for float64"),
        (small, "is not for optim.small-sizes"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=f"--cuda-graph {reason}"):
            replace(TINY, **changes, cuda_graph=True)
    with pytest.raises(ValueError, match="--cuda-graph is not for the task 'dino', whose steps can't be captured"):
        replace(PRESETS["cifar10-dino"], device="cuda", cuda_graph=True)
