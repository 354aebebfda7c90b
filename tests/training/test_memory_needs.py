import json
import re
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinyvit import ViT, ViTConfig, create_model, optim
from tinyvit.models import build
from tinyvit.training import PRESETS, inference, loop, resume, train, train_step, trainer
from tinyvit.training.inference import evaluation_batch, memory_to_evaluate
from tinyvit.training.memory_needs import (
    ARGUMENTS,
    OPTIONS,
    OutOfMemory,
    Step,
    largest,
    measurement,
    readable,
    require_memory,
)  # fmt: skip
from tinyvit.training.tasks import classification
from tinyvit.training.trainer import Trainer

SHAPE = ViTConfig(img_size=8, patch_size=2, in_chans=1, embed_dim=32, depth=2, num_heads=2)
MEASURED = {False: (2000, 60_000.5), True: (3000, 20_000.0)}.get  # recompute -> bytes: fixed, and for each sample
CONFIG = replace(PRESETS["digits"], model=replace(PRESETS["digits"].model, embed_dim=16, depth=1), epochs=1,
                 device="cpu", threads=2)  # fmt: skip

MEASURE = """
import json, sys
import numpy as np
from tinyvit import Context, Key, ViT, ViTConfig, optim
from tinyvit.models import ResNetConfig, build
from tinyvit.training import train_step
from tinyvit.training.memory_needs import step_of
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
    def loss_of(batch, ctx):
        return classification()(model, *batch.values(), ctx)
    batch = {"images": np.zeros((images, *model.image_shape), "float32"), "targets": np.zeros(images, int)}
    return step_of(model, optimizer, loss_of, batch, Context(True, Key(0, 0)), images, threads, accumulate)

shape, images, options = json.loads(sys.argv[1])
steps(ViT(ViTConfig(img_size=8, embed_dim=16, depth=1, num_heads=2)), 4, threads=options["threads"])
before = kilobytes("VmRSS")
if "layers" in shape:  # an architecture that the package doesn't know
    sys.path.insert(0, "tests")
    from tiny_architecture import TinyConfig
    model = build(TinyConfig(**shape))
elif "depths" in shape:  # with batch norm: all threads' parts are there at the same time, whatever the number of cores
    model = build(ResNetConfig(**shape))
else:
    model = ViT(ViTConfig(**shape))
optimizer = steps(model, images, **options)
measured = 1024 * (kilobytes("VmHWM") - before)
needs = foreseen(model, optimizer, images, **options)
print(measured, needs.total, needs.least)
"""


@pytest.mark.end_to_end
@pytest.mark.skipif(sys.platform != "linux", reason="it reads /proc")
@pytest.mark.parametrize(("shape", "images", "options"), [
    (dict(embed_dim=192, depth=3, num_heads=3, mlp_ratio=4.0), 48, dict(threads=2)),
    (dict(embed_dim=128, depth=2, num_heads=8, patch_size=2), 32, dict(threads=1)),
    (dict(embed_dim=192, depth=3, num_heads=3, mlp_ratio=4.0, drop_rate=0.1), 64, dict(threads=4, accumulate=2)),
    (dict(embed_dim=512, depth=6, num_heads=8, patch_size=8), 16, dict(threads=2)),
    (dict(img_size=32, in_chans=3, width=128, layers=6), 64, dict(threads=2)),
    (dict(img_size=32, depths=(2, 2), width=16), 64, dict(threads=3, accumulate=2)),
])  # fmt: skip
def test_a_step_needs_about_what_is_predicted_and_never_less_than_the_least(shape, images, options):
    """At the level of kernels in force: CI runs it at all of them."""
    command = [sys.executable, "-c", MEASURE, json.dumps([shape, images, options])]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    measured, total, least = map(int, done.stdout.split())
    assert 0.85 < total / measured < 1.15
    assert least < measured


steps = st.builds(
    Step, fixed=st.sampled_from((150_000, 200_000)), gradients=st.just(50_000), sample=st.just(256),
    between=st.sampled_from((0, 450_000)), measured=st.just(MEASURED), batch_size=st.integers(1, 500),
    threads=st.integers(1, 4), accumulate=st.integers(1, 8), recompute=st.booleans(),
)  # fmt: skip


def asked_for(text):
    """The changes to a Step that the advice suggests."""
    changes = {}
    for part in text.split(" with "):
        name, *value = part.split()
        field = {"--batch-size": "batch_size", "--recompute": "recompute", "--optim.accumulate": "accumulate"}[name]
        changes[field] = int(value[0]) if value else True
    return changes


@given(step=steps, share=st.floats(0.05, 1))
def test_the_advised_settings_fit_and_one_image_more_or_one_part_less_does_not(step, share):
    room = share * step.total
    for text in step.advice(room, OPTIONS):
        changes = asked_for(text)
        changed = replace(step, **changes)
        assert changed.total <= room
        if "batch_size" in changes and changed.batch_size + 1 < step.batch_size:
            assert replace(changed, batch_size=changed.batch_size + 1).total > room
        if "accumulate" in changes and changed.accumulate > step.accumulate + 1:
            assert replace(changed, accumulate=changed.accumulate - 1).total > room


@given(step=steps)
def test_a_larger_batch_needs_more_and_more_parts_of_it_need_no_more(step):
    assert replace(step, batch_size=step.batch_size + 8).total > step.total
    assert replace(step, accumulate=step.accumulate + 1).total <= step.total


def step(batch_size, threads=1):
    return Step(150_000, 50_000, batch_size, 256, measured=MEASURED, threads=threads)


def test_parts_that_run_one_after_the_other_need_the_memory_of_one(monkeypatch):
    monkeypatch.setattr("tinyvit.training.threads.cores", lambda: 1)
    one, four = (step(64, threads) for threads in (1, 4))
    assert four.activations == round(2000 + 16 * 60_000.5) and one.activations == round(2000 + 64 * 60_000.5)
    assert four.held - one.held == 3 * 50_000


def measured_of(model):
    def loss_of(batch, ctx):
        return classification()(model, *batch.values(), ctx)

    batch = {"images": np.zeros((64, *model.image_shape), "float32"), "targets": np.zeros(64, int)}
    return measurement(model, loss_of, batch)


def test_recomputation_needs_less_the_deeper_the_model():
    for depth in (4, 16):
        model = ViT(replace(SHAPE, depth=depth))
        measured = measured_of(model)
        assert measured(True)[1] < (0.3 + 1 / depth) * measured(False)[1]


def test_a_measurement_changes_neither_weights_nor_gradients_nor_optimizer():
    model = ViT(SHAPE)
    optimizer = optim.AdamW(model)
    before = model.storage.data.copy()
    assert measured_of(model)(False)[1] > 1000
    np.testing.assert_array_equal(model.storage.data, before)
    assert not model.storage.gradients().any() and optimizer.t == 0


def test_a_model_for_which_not_even_one_sample_fits_is_refused_without_advice():
    model = ViT(SHAPE)

    def failing(batch, ctx):
        raise MemoryError

    step = Step(150_000, 50_000, 64, measured=measurement(model, failing, {"images": np.zeros((64, 1, 8, 8))}))
    with pytest.raises(OutOfMemory, match="not even one image fits: take a smaller model$"):
        require_memory(step, step.total - 1)


@given(limit=st.integers(0, 50), most=st.integers(0, 40))
def test_largest_is_the_last_count_for_which_something_holds(limit, most):
    assert largest(lambda count: count <= limit, most) == min(limit, most)


def test_the_message_says_what_is_needed_what_there_is_and_what_fits(monkeypatch):
    monkeypatch.setattr("tinyvit.training.threads.cores", lambda: 2)
    plan = step(10_000, 2)
    text, in_python = (plan.message(plan.total // 2, names) for names in (OPTIONS, ARGUMENTS))
    assert text.startswith(f"too little memory: a step on 10000 images needs about {readable(plan.total)}")
    assert "--recompute" in text and f"and {plan.total // 2 / 1e6:.0f} MB can be had; --batch-size " in text
    assert "--optim.accumulate 4 would fit" in text and "accumulate=4 would fit" in in_python


def test_the_message_says_so_where_nothing_would_fit():
    text = step(64).message(1000, OPTIONS)
    assert text.endswith("not even one image fits: take a smaller model")


def test_the_message_has_no_number_that_is_too_long_to_read():
    with pytest.raises(OutOfMemory, match="needs about a billion GB or more .* for weights") as error:
        require_memory(Step(10**400, 10**400, 64), 10**9)
    assert len(str(error.value)) < 400


@pytest.mark.parametrize("room", [None, 10**15])
def test_a_step_that_ran_out_of_memory_despite_the_prediction_is_advised_a_smaller_batch(room):
    plan = step(50_000)
    advised = re.search(r"--batch-size (\d+)", plan.message(room, OPTIONS))[1]
    assert int(advised) < 50_000


def test_too_little_memory_is_refused_or_warned_about_and_unknown_memory_is_neither():
    plan = step(1000)
    require_memory(plan, None)
    require_memory(plan, plan.total)
    with pytest.warns(UserWarning, match="^there may be too little memory: .*--batch-size"):
        require_memory(plan, plan.total - 1)
    with pytest.raises(OutOfMemory, match="^too little memory: .*--batch-size"):
        require_memory(plan, plan.least - 1)


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_evaluated_256_images_at_a_time(name):
    assert evaluation_batch(build(PRESETS[name].model)) == 256


def test_a_large_model_is_evaluated_on_fewer_images_at_a_time():
    sizes = [evaluation_batch(create_model(f"vit_{size}_patch16_224", device="meta")) for size in ("tiny", "base")]
    assert 256 > sizes[0] > sizes[1] >= 1
    assert {size & (size - 1) for size in sizes} == {0}


def test_an_evaluation_without_room_is_refused():
    model = ViT(SHAPE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inference, "available_memory", lambda device: 1000)
        message = "to evaluate 256 images .* MB, and 0 MB can be had"
        with pytest.raises(OutOfMemory, match=message), memory_to_evaluate(model):
            raise AssertionError
    with pytest.raises(OutOfMemory, match="to evaluate 64 images"), memory_to_evaluate(model, 64):
        raise MemoryError


@pytest.mark.parametrize(("optim_changes", "model_changes", "larger"), [
    (dict(small_sizes=(4,), small_until=(0.5,)), dict(dynamic_img_size=True), False),
    (dict(small_sizes=(4,), small_until=(1.0,)), dict(dynamic_img_size=True), True),
    (dict(keep_patches=0.5, keep_until=0.5), {}, False),
    (dict(keep_patches=0.5, keep_until=1.0), {}, True),
])  # fmt: skip
def test_the_prediction_covers_the_largest_images_and_the_most_patches(optim_changes, model_changes, larger):
    config = replace(CONFIG, model=replace(CONFIG.model, patch_size=1, **model_changes))
    whole = Trainer(config).plan.activations
    config = replace(config, optim=replace(config.optim, **optim_changes))
    assert (Trainer(config).plan.activations < 0.8 * whole) == larger


@pytest.mark.parametrize("field", ["depth", "embed_dim"])
def test_a_model_whose_weights_do_not_fit_is_refused_before_it_is_made(tmp_path, field):
    config = replace(CONFIG, model=replace(CONFIG.model, **{field: 1000 if field == "depth" else 4_000_000}))
    with pytest.raises(OutOfMemory, match="too little memory"), pytest.MonkeyPatch.context() as patch:
        patch.setattr(trainer, "available_memory", lambda device: 10_000_000)
        train(config, tmp_path / "run")
    assert not any(tmp_path.iterdir())


# -- trainings ------------------------------------------------------------------------------------------------------


def test_a_training_that_cannot_fit_is_refused_before_anything_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr(trainer, "available_memory", lambda device: 10_000)
    with pytest.raises(OutOfMemory, match="a step on 64 images needs about .* 0 MB can be had"):
        train(CONFIG, tmp_path / "run")
    assert not any(tmp_path.iterdir())


@pytest.mark.end_to_end
def test_a_run_that_cannot_fit_is_not_resumed_and_stays(tmp_path, monkeypatch):
    train(replace(CONFIG, epochs=1), tmp_path / "run")
    (tmp_path / "run" / "summary.json").unlink()
    before = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    monkeypatch.setattr(trainer, "available_memory", lambda device: 10_000)
    with pytest.raises(OutOfMemory):
        resume(tmp_path / "run")
    assert {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()} == before


@pytest.mark.end_to_end
def test_an_unknown_amount_of_memory_refuses_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(trainer, "available_memory", lambda device: None)
    assert train(CONFIG, tmp_path / "run")["epochs"] == 1


def failing_objective(model, images, targets, ctx):
    if len(images) > 40:
        raise MemoryError("Unable to allocate 1 GiB")
    return classification()(model, images, targets, ctx)


def test_a_step_that_runs_out_of_memory_says_what_would_fit_and_changes_no_weight():
    model = ViT(SHAPE)
    optimizer, before = optim.AdamW(model), model.storage.data.copy()
    images, labels = np.zeros((300, 1, 8, 8), "float32"), np.zeros(300, int)
    for threads in (1, 2):
        with pytest.raises(MemoryError, match="a step on 300 images .*a batch of .*accumulate=") as caught:
            train_step(model, optimizer, images, labels, objective=failing_objective, threads=threads)
        assert isinstance(caught.value, OutOfMemory) and "1 GiB" in str(caught.value.__cause__)
    np.testing.assert_array_equal(model.storage.data, before)
    assert optimizer.t == 0


@pytest.mark.end_to_end
def test_a_training_that_runs_out_of_memory_keeps_its_checkpoints_and_can_be_resumed(tmp_path, monkeypatch):
    config = replace(CONFIG, epochs=2, batch_size=256)
    whole = train(config, tmp_path / "whole")
    calls = []

    def sometimes(*arguments, **options):
        calls.append(1)
        if len(calls) == 8:  # in the second epoch
            raise MemoryError
        return train_step(*arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(loop, "train_step", sometimes)
        with pytest.raises(OutOfMemory, match="--optim.accumulate"):
            train(config, tmp_path / "run")
    assert resume(tmp_path / "run")["test_loss"] == whole["test_loss"]
    for name in ("whole", "run"):
        assert (tmp_path / name / "model.safetensors").exists()
    assert (tmp_path / "run/model.safetensors").read_bytes() == (tmp_path / "whole/model.safetensors").read_bytes()


LIMITED = """
import resource, sys
from tinyvit import cli
from tinyvit.training import trainer
if sys.argv[1] == "unforeseen":
    trainer.require_memory = lambda step, room: None
used = 1024 * next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmSize"))
resource.setrlimit(resource.RLIMIT_AS, (used + 500_000_000,) * 2)
cli.main(sys.argv[2:])
"""


@pytest.mark.end_to_end
@pytest.mark.skipif(sys.platform != "linux", reason="it limits the address space")
@pytest.mark.parametrize("how", ["foreseen", pytest.param("unforeseen", marks=pytest.mark.full)])
def test_within_a_limit_of_the_system_a_training_ends_with_one_line_and_what_it_advises_runs(tmp_path, how):
    def run(out, *more):
        command = f"train digits --epochs 1 --model.patch-size 1 --batch-size 512 --device cpu --threads 1 --out {out}"
        arguments = [how, *command.split(), "--kernels", "numpy", *more]
        return subprocess.run([sys.executable, "-c", LIMITED, *arguments], cwd=tmp_path, capture_output=True, text=True)

    refused = run("first")
    assert refused.returncode == 2
    (line,) = refused.stderr.splitlines()
    assert line.startswith("tinyvit: error: too little memory: a step on 479 images needs about ")
    assert (tmp_path / "first").exists() == (how == "unforeseen")
    parts = line.split("--optim.accumulate ")[1].split()[0]
    allowed = run("second", "--optim.accumulate", parts)
    assert (allowed.returncode, allowed.stderr) == (0, "")
