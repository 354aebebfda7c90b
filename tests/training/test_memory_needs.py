import json
import re
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from tinyvit import Context, ViT, ViTConfig, create_model, optim
from tinyvit.training import PRESETS, train, train_step, trainer
from tinyvit.training.inference import evaluation_batch
from tinyvit.training.memory_needs import Needs, OutOfMemory, bytes_per_sample, require_memory
from tinyvit.training.tasks import Classification
from tinyvit.training.trainer import Trainer

SHAPE = ViTConfig(img_size=8, patch_size=2, in_chans=1, embed_dim=32, depth=2, num_heads=2)
CONFIG = replace(PRESETS["digits"], model=replace(PRESETS["digits"].model, embed_dim=16, depth=1), epochs=1,
                 device="cpu", threads=2)  # fmt: skip

MEASURE = """
import json, sys
import numpy as np
sys.path.insert(0, "tests")
import tiny_architecture  # one that the package doesn't know
from tinyvit import Context, Key, ViTConfig, optim
from tinyvit.models import build, config_class
from tinyvit.training import train_step
from tinyvit.training.memory_needs import CERTAIN_FRACTION, needs_of_step
from tinyvit.training.tasks import classification

def kilobytes(name):
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(name))

def steps(model, images, **options):
    draw, optimizer = np.random.default_rng(0), optim.AdamW(model)
    for i in range(2):
        batch = draw.standard_normal((images, *model.image_shape), "float32")
        train_step(model, optimizer, batch, draw.integers(0, 10, images), Context(True, Key(0, i)), **options)
    return optimizer

def foreseen(model, optimizer, images, threads, accumulate=1):
    def objective(model, batch, ctx):
        return classification()(model, *batch.values(), ctx)
    batch = {"images": np.zeros((images, *model.image_shape), "float32"), "targets": np.zeros(images, int)}
    return needs_of_step(model, optimizer, objective, batch, Context(True, Key(0, 0)), threads, accumulate)

architecture, shape, images, options = json.loads(sys.argv[1])
steps(build(ViTConfig(img_size=8, embed_dim=16, depth=1, num_heads=2)), 4, threads=options["threads"])
before = kilobytes("VmRSS")
model = build(config_class(architecture)(**shape))
optimizer = steps(model, images, **options)
measured = 1024 * (kilobytes("VmHWM") - before)
needs = foreseen(model, optimizer, images, **options)
total = needs.total(images)
print(measured, total, needs.held + CERTAIN_FRACTION * (total - needs.held))
"""


@pytest.mark.end_to_end
@pytest.mark.skipif(sys.platform != "linux", reason="it reads /proc")
@pytest.mark.parametrize(("architecture", "shape", "images", "options"), [
    ("vit", dict(embed_dim=128, depth=2, num_heads=8, patch_size=2), 32, dict(threads=1)),
    ("vit", dict(embed_dim=192, depth=3, num_heads=3, mlp_ratio=4.0, drop_rate=0.1), 64, dict(threads=4, accumulate=2)),
    ("vit", dict(embed_dim=512, depth=6, num_heads=8, patch_size=8), 16, dict(threads=2)),
    ("tiny", dict(img_size=32, in_chans=3, width=128, layers=6), 64, dict(threads=2)),
    # With batch norm all threads' parts are there at the same time, whatever the number of cores.
    ("resnet", dict(img_size=32, depths=(2, 2), width=16), 64, dict(threads=3, accumulate=2)),
])  # fmt: skip
def test_a_step_needs_about_what_is_predicted_and_never_less_than_the_least(architecture, shape, images, options):
    """At the level of kernels in force: CI runs it at all of them."""
    command = [sys.executable, "-c", MEASURE, json.dumps([architecture, shape, images, options])]
    # Of a ResNet the least of three: in the first numba compiles, and now and then threads free memory in an order that
    # leaves gaps.
    runs = [subprocess.run(command, capture_output=True, check=True) for _ in range(1 + 2 * (architecture == "resnet"))]
    measured, total, least = min([float(number) for number in run.stdout.split()] for run in runs)
    assert 0.85 < total / measured < 1.15
    assert least < measured


def measured_of(model, recompute=False):
    batch = {"images": np.zeros((64, *model.image_shape), "float32"), "targets": np.zeros(64, int)}
    return bytes_per_sample(model, Classification(CONFIG).loss, batch, Context(recompute=recompute))


def test_recomputation_needs_less_the_deeper_the_model():
    for depth in (4, 16):
        model = ViT(replace(SHAPE, depth=depth))
        assert measured_of(model, True) < (0.3 + 1 / depth) * measured_of(model)


def test_a_measurement_changes_neither_weights_nor_gradients_nor_optimizer():
    model = ViT(SHAPE)
    optimizer = optim.AdamW(model)
    before = model.storage.data.copy()
    assert measured_of(model) > 1000
    np.testing.assert_array_equal(model.storage.data, before)
    assert not model.storage.gradients().any() and optimizer.t == 0


NEEDS = Needs(held=200_000, sample=60_000.5, between=450_000)


def test_parts_that_run_one_after_the_other_need_the_memory_of_one(monkeypatch):
    monkeypatch.setattr("tinyvit.training.threads.cores", lambda: 1)
    one, four = (Trainer(replace(CONFIG, threads=threads)).memory_needs() for threads in (1, 4))
    assert four.sample < 0.4 * one.sample
    assert four.held > one.held


@pytest.mark.parametrize("batch_size", [100, 10_000])
@pytest.mark.parametrize("share", [0.3, 0.9, 1, 3, None])
def test_the_advised_batch_is_smaller_and_fits_with_little_to_spare(batch_size, share):
    total = NEEDS.total(batch_size)
    free = None if share is None else round(share * total)
    fits = int(re.search(r"--batch-size (\d+) would fit", NEEDS.message(batch_size, free))[1])
    assert fits < batch_size
    assert NEEDS.total(fits) < 0.9 * min(1, share or 1) * total < 2 * NEEDS.total(fits + 2)


@pytest.mark.parametrize("free", [0, 300_000, 1_000_000])
def test_the_message_says_so_where_nothing_would_fit(free):
    assert NEEDS.message(64, free).endswith("not even one image fits: take a smaller model")
    assert NEEDS.message(1, None).endswith("not even one image fits: take a smaller model")


def test_too_little_memory_is_refused_and_unknown_memory_is_not():
    total = NEEDS.total(1000)
    require_memory(NEEDS, 1000, None)
    require_memory(NEEDS, 1000, int(0.8 * total))
    with pytest.raises(OutOfMemory, match="^too little memory: .*--batch-size"):
        require_memory(NEEDS, 1000, int(0.7 * total))


def test_where_memory_is_ample_nothing_is_measured(monkeypatch):
    monkeypatch.setattr(trainer, "needs_of_step", None)
    Trainer(CONFIG)


def test_a_large_model_is_evaluated_on_fewer_images_at_a_time():
    sizes = [evaluation_batch(create_model(f"vit_{size}_patch16_224", device="meta")) for size in ("tiny", "base")]
    assert 256 > sizes[0] > sizes[1] >= 1
    assert {size & (size - 1) for size in sizes} == {0}


@pytest.mark.parametrize(("optim_changes", "model_changes", "larger"), [
    (dict(small_sizes=(4,), small_until=(0.5,)), dict(dynamic_img_size=True), False),
    (dict(small_sizes=(4,), small_until=(1.0,)), dict(dynamic_img_size=True), True),
    (dict(keep_patches=0.5, keep_until=0.5), {}, False),
    (dict(keep_patches=0.5, keep_until=1.0), {}, True),
])  # fmt: skip
def test_the_prediction_covers_the_largest_images_and_the_most_patches(optim_changes, model_changes, larger):
    config = replace(CONFIG, model=replace(CONFIG.model, patch_size=1, **model_changes))
    whole = Trainer(config).memory_needs().sample
    config = replace(config, optim=replace(config.optim, **optim_changes))
    assert (Trainer(config).memory_needs().sample < 0.8 * whole) == larger


@pytest.mark.parametrize("field", ["depth", "embed_dim"])
def test_a_model_whose_weights_do_not_fit_is_refused_before_it_is_made(tmp_path, field):
    config = replace(CONFIG, model=replace(CONFIG.model, **{field: 1000 if field == "depth" else 60_000}))
    with pytest.raises(OutOfMemory, match="too little memory"), pytest.MonkeyPatch.context() as patch:
        patch.setattr(trainer, "available_memory", lambda device: 10_000_000)
        train(config, tmp_path / "run")
    assert not any(tmp_path.iterdir())


# -- trainings ------------------------------------------------------------------------------------------------------


def failing_objective(model, images, targets, ctx):
    raise MemoryError("Unable to allocate 1 GiB")


def test_a_step_that_runs_out_of_memory_changes_no_weight():
    model = ViT(SHAPE)
    optimizer, before = optim.AdamW(model), model.storage.data.copy()
    with pytest.raises(MemoryError, match="1 GiB"):
        train_step(model, optimizer, np.zeros((9, 1, 8, 8)), np.zeros(9, int), objective=failing_objective, threads=2)
    np.testing.assert_array_equal(model.storage.data, before)
    assert optimizer.t == 0


@pytest.mark.end_to_end
def test_a_training_that_runs_out_of_memory_says_what_would_fit(tmp_path, monkeypatch):
    monkeypatch.setattr(Classification, "loss", failing_objective)
    monkeypatch.setattr(trainer, "needs_of_step", lambda *model: NEEDS)
    with pytest.raises(OutOfMemory, match="a step on 64 images .*--batch-size .* would fit; --recompute") as caught:
        train(CONFIG, tmp_path / "run")
    assert "1 GiB" in str(caught.value.__cause__)


LIMITED = """
import resource, sys
from tinyvit import cli
from tinyvit.training import trainer
if sys.argv[1] == "unforeseen":
    trainer.require_memory = lambda *needs: None
used = 1024 * next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmSize"))
resource.setrlimit(resource.RLIMIT_AS, (used + 500_000_000,) * 2)
cli.main(sys.argv[2:])
"""


@pytest.mark.end_to_end
@pytest.mark.skipif(sys.platform != "linux", reason="it limits the address space")
@pytest.mark.parametrize("how", ["foreseen", pytest.param("unforeseen", marks=pytest.mark.full)])
def test_within_a_limit_of_the_system_a_training_ends_with_one_line_and_what_it_advises_runs(tmp_path, how):
    def run(out, *more):
        command = (f"train digits --epochs 1 --model.patch-size 1 --model.embed-dim 64 --batch-size 512 --device cpu "
                   f"--threads 1 --out {out}")  # fmt: skip
        arguments = [how, *command.split(), "--kernels", "numpy", *more]
        return subprocess.run([sys.executable, "-c", LIMITED, *arguments], cwd=tmp_path, capture_output=True, text=True)

    refused = run("first")
    assert refused.returncode == 2
    (line,) = refused.stderr.splitlines()
    assert line.startswith("tinyvit: error: too little memory: a step on 479 images needs about ")
    assert (tmp_path / "first").exists() == (how == "unforeseen")
    allowed = run("second", "--batch-size", re.search(r"--batch-size (\d+)", line)[1])
    assert (allowed.returncode, allowed.stderr) == (0, "")
