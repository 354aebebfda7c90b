"""The GPU memory of a step, and the error where there is less; the stand-in counts the arrays' bytes."""

import gc
from dataclasses import replace

import numpy as np
import pretend_cublas
import pretend_cupy
import pytest
from emulated_cuda import emulator
from pretend_cupy import Pool

from tinyvit import Context, Key, ViT, ViTConfig, backend, cli, optim
from tinyvit.kernels.cuda.cublas import STATUSES
from tinyvit.training import PRESETS, train_step
from tinyvit.training.memory_needs import CERTAIN_FRACTION, OutOfMemory, is_lack_of_memory, needs_of_step
from tinyvit.training.tasks import Classification
from tinyvit.training.trainer import Trainer, load_split

pytestmark = pytest.mark.cuda
SHAPE = ViTConfig(img_size=16, patch_size=4, in_chans=3, embed_dim=64, depth=3, num_heads=4)
CONFIG = replace(
    PRESETS["digits"], model=replace(PRESETS["digits"].model, embed_dim=16, depth=1), epochs=2, batch_size=512,
    device="cuda", save_minutes=0.0,
)  # fmt: skip


@pytest.fixture(autouse=True)
def restored(pretended, monkeypatch):
    monkeypatch.setattr(Pool, "limit", Pool.limit)


def batch(count, config=SHAPE):
    draw = np.random.default_rng(0)
    images = draw.standard_normal((count, config.in_chans, config.img_size, config.img_size), "float32")
    return [backend.to_device(x, "cuda") for x in (images, draw.integers(0, 10, count))]


def peak_of(function):
    """Peak bytes of all arrays while a function runs, minus the bytes before."""
    gc.collect()  # objects held by exceptions of earlier tests
    before = Pool.peak = Pool.used
    result = function()
    del result
    return Pool.peak - before


@pytest.fixture
def uncomputed(monkeypatch):
    """Kernels and products allocate what they do and compute nothing, as only the memory counts."""
    monkeypatch.setattr(emulator, "launch", lambda *launch: None)
    monkeypatch.setattr(pretend_cublas, "launched", lambda work: None)


@pytest.mark.usefixtures("uncomputed")
@pytest.mark.parametrize(("shape", "images", "options"), [
    ({}, 32, {}),
    (dict(depth=6), 16, dict(recompute=True)),
    (dict(patch_size=2, depth=2), 8, {}),
    (dict(embed_dim=128, depth=2, mlp_ratio=4.0), 32, dict(accumulate=2)),
    (dict(embed_dim=256, patch_size=8, depth=4), 2, {}),
])  # fmt: skip
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_step_needs_about_what_is_predicted(shape, images, options, precision):
    config, accumulate = replace(SHAPE, **shape), options.get("accumulate", 1)
    recompute = options.get("recompute", False)

    def two_steps():
        model = ViT(config, device="cuda", precision=precision)
        optimizer, arrays = optim.AdamW(model), batch(images, config)
        for step in range(2):
            ctx = Context(True, Key(0, step), recompute=recompute)
            train_step(model, optimizer, *arrays, ctx, accumulate=accumulate)

        named, objective = dict(zip(("images", "targets"), arrays)), Classification(CONFIG).loss
        return lambda: needs_of_step(model, optimizer, objective, named, ctx, accumulate=accumulate)

    found = []
    measured = peak_of(lambda: found.append(two_steps()))
    needs = found[0]()
    total = needs.total(images)
    assert 0.8 < total / measured < 1.25, (total / measured, needs, measured)
    assert needs.held + CERTAIN_FRACTION * (total - needs.held) < measured


def with_room(monkeypatch, room):
    """A GPU with this much memory left."""
    gc.collect()  # what earlier tests left behind would be free later
    monkeypatch.setattr(Pool, "limit", Pool.used + room)


@pytest.mark.usefixtures("uncomputed")
def test_a_step_that_does_not_fit_changes_nothing(monkeypatch):
    model = ViT(SHAPE, device="cuda")
    optimizer, arrays = optim.AdamW(model), batch(256)
    train_step(model, optimizer, *(x[:2] for x in arrays))
    before, t = model.storage.data.get(), int(optimizer.t)
    with_room(monkeypatch, 10_000_000)
    with pytest.raises(pretend_cupy.OutOfMemoryError):
        train_step(model, optimizer, *arrays)
    np.testing.assert_array_equal(model.storage.data.get(), before)
    assert int(optimizer.t) == t
    train_step(model, optimizer, *(x[:8] for x in arrays))


@pytest.mark.usefixtures("uncomputed")
def test_the_advised_settings_fit_and_the_ones_that_did_not_are_refused_beforehand(monkeypatch):
    config = replace(CONFIG, model=replace(PRESETS["digits"].model, patch_size=2))
    split, trainer = load_split(config), Trainer(config)
    needs = trainer.memory_needs()
    total = needs.total(trainer.largest)
    assert needs.held > split.train.images.nbytes + split.train.labels.nbytes
    with_room(monkeypatch, int(CERTAIN_FRACTION * total) - 1)
    # 1,437 images in three batches of 479.
    with pytest.raises(OutOfMemory, match="a step on 479 images .* are free on cuda:0; --batch-size .* would fit"):
        Trainer(config)
    with_room(monkeypatch, total)
    Trainer(config)


def test_arrays_that_nobody_can_reach_any_more_do_not_hide_what_a_step_takes():
    def take():
        gc.collect()
        backend.to_device(np.zeros(1_000_000, "float32"), "cuda")

    cycle = [backend.to_device(np.zeros(1_000_000, "float32"), "cuda")]
    cycle.append(cycle)
    del cycle
    assert backend.peak_of_pool(take, "cuda:0") >= 4_000_000


def test_a_training_that_does_not_fit_is_refused_by_one_line_before_anything_is_written(monkeypatch, tmp_path, capsys):
    with_room(monkeypatch, 1_000_000)
    with pytest.raises(SystemExit) as end:
        # large enough that the step, and not what is set up before, is what doesn't fit
        cli.main(f"train digits --batch-size 1024 --model.patch-size 4 --model.embed-dim 64 --model.positions learned "
                 f"--optim.name adamw --device cuda --out {tmp_path / 'run'}".split())  # fmt: skip
    (line,) = capsys.readouterr().err.splitlines()
    assert end.value.code == 2 and line.startswith("tinyvit: error: too little memory: a step on 1024 images needs ")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("text", [
    "cudaErrorMemoryAllocation: out of memory", "CUDA_ERROR_OUT_OF_MEMORY: out of memory", STATUSES[3],
])  # fmt: skip
def test_errors_of_cuda_about_a_lack_of_memory_are_recognised(text):
    assert is_lack_of_memory(RuntimeError(text)) and is_lack_of_memory(pretend_cupy.OutOfMemoryError("…"))
    assert not is_lack_of_memory(RuntimeError("CUBLAS_STATUS_EXECUTION_FAILED"))
