"""2,000 training steps need no more memory than the first few hundred."""

import subprocess
import sys

import pytest

from tinyvit import kernels

pytestmark = [pytest.mark.full, pytest.mark.skipif(sys.platform != "linux", reason="it reads /proc")]

TRAIN = """
import gc, os, sys
from dataclasses import replace
import tinyvit
from tinyvit.training import PRESETS, train
from tinyvit.training.display import Display

class Watching(Display):
    steps = 0

    def step(self, *arguments):
        super().step(*arguments)
        self.steps += 1
        if self.steps in (200, 2000):
            with open("/proc/self/statm") as file:
                print(int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE"), file=sys.stderr, flush=True)

    def print(self, text):
        pass

# 1,437 images in batches of 64: 22 steps an epoch, and an evaluation and a checkpoint every 5 epochs.
gc.disable()  # what only a search for cycles would free counts as kept
digits = PRESETS["digits"]
config = replace(
    digits, model=replace(digits.model, embed_dim=32, depth=2), optim=replace(digits.optim, ema=0.99), epochs=91,
    threads=2, device="cpu", evaluate_every=5, save_minutes=0.02, kernels=sys.argv[2],
)
if sys.argv[3] != "as it is":
    from tinyvit.training.tasks.classification import Classification
    kept, loss = [], Classification.loss
    def keep(task, model, batch, ctx):
        held = [batch["images"][:4].copy()]  # as little as four images of each part
        (kept if sys.argv[3] == "a list" else held).append(held)
        return loss(task, model, batch, ctx)
    Classification.loss = keep
train(config, sys.argv[1], Watching())
"""
MOST = 2 << 20  # bytes: keeping four images of each part of each step would take twice as much


def growth(folder, level, how):
    """Growth in bytes of a training's resident memory from step 200 to step 2,000."""
    done = subprocess.run(
        [sys.executable, "-c", TRAIN, folder / "run", level, how], capture_output=True, text=True, check=True
    )
    early, late = map(int, done.stderr.split())
    return late - early


@pytest.mark.parametrize("level", kernels.LEVELS)
def test_a_training_of_2000_steps_does_not_grow(tmp_path, level):
    assert growth(tmp_path, level, "as it is") < MOST


@pytest.mark.parametrize("how", ["a list", "a cycle"])
def test_a_leak_in_each_step_would_be_noticed(tmp_path, how):
    assert growth(tmp_path, "numpy", how) > MOST
