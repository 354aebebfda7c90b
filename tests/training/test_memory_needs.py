import json
import os
import re
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinyvit import ViT, ViTConfig, create_model, kernels, optim
from tinyvit.training import PRESETS, TrainConfig, memory_needs, resume, train, train_step, trainer
from tinyvit.training.memory_needs import (
    ARGUMENTS,
    OPTIONS,
    OutOfMemory,
    Step,
    evaluation_batch,
    largest,
    readable,
    require_room,
    room_to_evaluate,
    step_of,
)  # fmt: skip

SHAPE = ViTConfig(img_size=8, patch_size=2, in_chans=1, embed_dim=32, depth=2, num_heads=2)
MODEL = ViT(SHAPE, device="meta")
CONFIG = replace(PRESETS["digits"], model=replace(PRESETS["digits"].model, embed_dim=16, depth=1), epochs=1,
                 device="cpu", threads=2)  # fmt: skip

MEASURE = """
import json, sys
import numpy as np
from tinyvit import Context, Key, ViT, ViTConfig, optim
from tinyvit.training import train_step
from tinyvit.training.memory_needs import Step

def kilobytes(name):
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(name))

def steps(config, images, **options):
    model = ViT(config)
    optimizer, draw = optim.AdamW(model), np.random.default_rng(0)
    for i in range(2):
        batch = draw.standard_normal((images, config.in_chans, config.img_size, config.img_size), "float32")
        train_step(model, optimizer, batch, draw.integers(0, 10, images), Context(True, Key(0, i)), **options)

shape, images, options = json.loads(sys.argv[1])
steps(ViTConfig(img_size=8, embed_dim=16, depth=1, num_heads=2), 4, threads=options["threads"])
before = kilobytes("VmRSS")
steps(ViTConfig(**shape), images, **options)
needs = Step(ViT(ViTConfig(**shape), device="meta"), images, **options).needs()
print(1024 * (kilobytes("VmHWM") - before), needs.total, needs.least)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="it reads /proc")
@pytest.mark.parametrize(("shape", "images", "options"), [
    (dict(embed_dim=192, depth=3, num_heads=3, mlp_ratio=4.0), 48, dict(threads=2)),
    (dict(embed_dim=128, depth=2, num_heads=8, patch_size=2), 32, dict(threads=1)),
    (dict(embed_dim=192, depth=3, num_heads=3, mlp_ratio=4.0, drop_rate=0.1), 64, dict(threads=4, accumulate=2)),
    (dict(embed_dim=512, depth=6, num_heads=8, patch_size=8), 16, dict(threads=2)),
])  # fmt: skip
@pytest.mark.parametrize("level", kernels.LEVELS)
def test_a_step_needs_about_what_is_predicted_and_never_less_than_the_least(shape, images, options, level):
    arguments, environment = json.dumps([shape, images, options]), {**os.environ, "TINYVIT_KERNELS": level}
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, arguments], env=environment, capture_output=True, text=True, check=True
    )
    measured, total, least = map(int, done.stdout.split())
    assert 0.8 < total / measured < 1.25
    assert least < measured


steps = st.builds(
    Step, model=st.just(MODEL), batch_size=st.integers(1, 500), threads=st.integers(1, 4),
    accumulate=st.integers(1, 8), recompute=st.booleans(), saved=st.booleans(), average=st.booleans(),
)  # fmt: skip


def asked_for(text):
    """The changes to a Step that words of advice stand for."""
    changes = {}
    for part in text.split(" with "):
        name, *value = part.split()
        field = {"--batch-size": "batch_size", "--recompute": "recompute", "--optim.accumulate": "accumulate"}[name]
        changes[field] = int(value[0]) if value else True
    return changes


@given(step=steps, share=st.floats(0.05, 1))
def test_what_is_advised_fits_and_one_image_more_or_one_part_less_does_not(step, share):
    room = share * step.needs().total
    for text in step.that_fit(room, OPTIONS):
        changes = asked_for(text)
        changed = replace(step, **changes)
        assert changed.fits(room)
        if "batch_size" in changes and changed.batch_size + 1 < step.batch_size:
            assert not replace(changed, batch_size=changed.batch_size + 1).fits(room)
        if "accumulate" in changes and changed.accumulate > step.accumulate + 1:
            assert not replace(changed, accumulate=changed.accumulate - 1).fits(room)


@given(step=steps)
def test_a_larger_batch_needs_more_and_more_parts_of_it_need_no_more(step):
    assert replace(step, batch_size=step.batch_size + 8).needs().total > step.needs().total
    assert replace(step, accumulate=step.accumulate + 1).needs().total <= step.needs().total


def test_parts_that_take_turns_need_memory_one_after_the_other(monkeypatch):
    monkeypatch.setattr("tinyvit.training.threads.cores", lambda: 1)
    one, four = (Step(MODEL, 64, threads).needs() for threads in (1, 4))
    assert four.activations == one.activations / 4
    assert four.weights - one.weights == 3 * 4 * MODEL.num_parameters()


def test_recomputation_needs_less_the_deeper_the_model():
    for depth in (4, 16):
        step = Step(ViT(replace(SHAPE, depth=depth), device="meta"), 64)
        share = replace(step, recompute=True).needs().activations / step.needs().activations
        assert share < 0.2 + 1 / depth


@given(limit=st.integers(0, 50), most=st.integers(0, 40))
def test_largest_is_the_last_count_for_which_something_holds(limit, most):
    assert largest(lambda count: count <= limit, most) == min(limit, most)


def test_the_message_says_what_is_needed_what_there_is_and_what_fits():
    step = Step(MODEL, 10_000, threads=2)
    needs = step.needs()
    text = step.message(needs.total // 2, OPTIONS)
    assert text.startswith(f"too little memory: a step on 10000 images needs about {readable(needs.total)}")
    assert f"and {needs.total // 2 / 1e6:.0f} MB can be had; --batch-size " in text
    assert "--recompute" in text and "--optim.accumulate 3 would fit" in text
    assert "accumulate=3 would fit" in step.message(needs.total // 2, ARGUMENTS)


def test_the_message_says_so_where_nothing_would_fit():
    text = Step(MODEL, 64).message(1000, OPTIONS)
    assert text.endswith("nor does a single image at a time fit: take a smaller model")


@pytest.mark.parametrize("room", [None, 10**15])
def test_what_ran_out_of_memory_in_spite_of_the_prediction_is_advised_to_need_less(room):
    step = Step(MODEL, 50_000)
    advised = re.search(r"--batch-size (\d+)", step.message(room, OPTIONS))[1]
    assert int(advised) < 50_000


def test_room_is_required_warned_of_or_unknown():
    step = Step(MODEL, 1000)
    needs = step.needs()
    require_room(step, None)
    require_room(step, needs.total)
    with pytest.warns(UserWarning, match="^there may be too little memory: .*--batch-size"):
        require_room(step, needs.total - 1)
    with pytest.raises(OutOfMemory, match="^too little memory: .*--batch-size"):
        require_room(step, needs.least - 1)


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_evaluated_256_images_at_a_time(name):
    assert evaluation_batch(ViT(PRESETS[name].model)) == 256


def test_a_large_model_is_evaluated_on_fewer_images_at_a_time():
    sizes = [evaluation_batch(create_model(f"vit_{size}_patch16_224", device="meta")) for size in ("tiny", "base")]
    assert 256 > sizes[0] > sizes[1] >= 1
    assert {size & (size - 1) for size in sizes} == {0}


def test_an_evaluation_without_room_is_refused():
    model = ViT(SHAPE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory_needs, "available_memory", lambda device: 1000)
        message = "to evaluate 256 images .* MB, and 0 MB can be had"
        with pytest.raises(OutOfMemory, match=message), room_to_evaluate(model):
            raise AssertionError
    with pytest.raises(OutOfMemory, match="to evaluate 64 images"), room_to_evaluate(model, 64):
        raise MemoryError


@pytest.mark.parametrize(("optim_changes", "model_changes", "tokens"), [
    (dict(small_sizes=(4,), small_until=(0.5,)), dict(dynamic_img_size=True), 16),
    (dict(small_sizes=(2, 4), small_until=(0.5, 1.0)), dict(dynamic_img_size=True), 4),
    (dict(keep_patches=0.5, keep_until=0.5), {}, 16),
    (dict(keep_patches=0.5, keep_until=1.0), {}, 8),
])  # fmt: skip
def test_the_largest_images_of_the_whole_training_count(optim_changes, model_changes, tokens):
    config = TrainConfig("digits", replace(SHAPE, **model_changes))
    config = replace(config, optim=replace(config.optim, **optim_changes))
    assert np.prod(step_of(config, 1).model.config.grid) == tokens


# -- trainings ------------------------------------------------------------------------------------------------------


def test_a_training_that_cannot_fit_is_refused_before_anything_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr(trainer, "available_memory", lambda device: 10_000)
    with pytest.raises(OutOfMemory, match="a step on 64 images needs about .* 0 MB can be had"):
        train(CONFIG, tmp_path / "run")
    assert not any(tmp_path.iterdir())


def test_a_run_that_cannot_fit_is_not_resumed_and_stays(tmp_path, monkeypatch):
    train(replace(CONFIG, epochs=1), tmp_path / "run")
    (tmp_path / "run" / "summary.json").unlink()
    before = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    monkeypatch.setattr(trainer, "available_memory", lambda device: 10_000)
    with pytest.raises(OutOfMemory):
        resume(tmp_path / "run")
    assert {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()} == before


def test_an_unknown_amount_of_memory_refuses_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(trainer, "available_memory", lambda device: None)
    assert train(CONFIG, tmp_path / "run")["epochs"] == 1


def failing_objective(model, images, targets, ctx):
    raise MemoryError("Unable to allocate 1 GiB")


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


def test_a_training_that_runs_out_of_memory_keeps_its_checkpoints_and_can_go_on(tmp_path, monkeypatch):
    config = replace(CONFIG, epochs=2, batch_size=256)
    whole = train(config, tmp_path / "whole")
    calls = []

    def sometimes(*arguments, **options):
        calls.append(1)
        if len(calls) == 8:  # in the second epoch
            raise MemoryError
        return train_step(*arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(trainer, "train_step", sometimes)
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
    trainer.require_room = lambda step, room: None
used = 1024 * next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmSize"))
resource.setrlimit(resource.RLIMIT_AS, (used + 500_000_000,) * 2)
cli.main(sys.argv[2:])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="it limits the address space")
@pytest.mark.parametrize("how", ["foreseen", "unforeseen"])
def test_within_a_limit_of_the_system_a_training_ends_with_one_line_and_what_it_advises_runs(tmp_path, how):
    def run(out, *more):
        command = f"train digits --epochs 1 --model.patch-size 1 --batch-size 512 --device cpu --threads 1 --out {out}"
        arguments = [how, *command.split(), "--kernels", "numpy", *more]
        return subprocess.run([sys.executable, "-c", LIMITED, *arguments], cwd=tmp_path, capture_output=True, text=True)

    refused = run("first")
    assert refused.returncode == 2
    (line,) = refused.stderr.splitlines()
    assert line.startswith("tinyvit: error: too little memory: a step on 512 images needs about ")
    assert (tmp_path / "first").exists() == (how == "unforeseen")
    parts = line.split("--optim.accumulate ")[1].split()[0]
    allowed = run("second", "--optim.accumulate", parts)
    assert (allowed.returncode, allowed.stderr) == (0, "")
