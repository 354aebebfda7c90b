"""Training steps in every precision, plain and as a CUDA graph: right, repeatable, and how fast."""

import sys
import time
import traceback
from dataclasses import replace
from functools import partial

import numpy as np

from tinyvit import kernels
from tinyvit.backend import to_device, to_numpy, why_no_gpu
from tinyvit.keys import Key
from tinyvit.models import ViT
from tinyvit.nn import Context
from tinyvit.optim import AdamW
from tinyvit.training import preset, train_step
from tinyvit.training.cuda_graph import StepGraphs
from tinyvit.training.memory_needs import OutOfMemory

DRY = why_no_gpu() is not None
DEVICE = "cpu" if DRY else "cuda:0"
CONFIG = replace(preset("cifar10").model, drop_path_rate=0.1, **({"depth": 2} if DRY else {}))
BOUND = {"float32": 1e-4, "tf32": 5e-3, "bfloat16": 5e-2, "float16": 2e-2}  # of losses, relative
STEPS = 4


class Training:
    """Steps on one batch of `count` images."""

    def __init__(self, device, precision, count=64, graph=False):
        self.model = ViT(CONFIG, seed=0, device=device, precision=precision)
        self.optimizer, draw = AdamW(self.model, 1e-3), np.random.default_rng(0)
        images = np.resize(draw.standard_normal((min(count, 1024), 3, 32, 32), "float32"), (count, 3, 32, 32))
        self.batch = [to_device(x, device) for x in (images, np.arange(count) % 10)]
        with self.model.storage.on_device():
            self.replay = partial(StepGraphs(device).run, "smoke") if graph else None
        self.number = 0

    def step(self):
        ctx = Context(training=True, key=Key(0, self.number))
        self.number += 1
        return train_step(self.model, self.optimizer, *self.batch, ctx, clip_norm=1.0, replay=self.replay)

    def losses(self):
        return np.array([float(self.step().loss) for _ in range(STEPS)])

    def weights(self):
        self.losses()
        return to_numpy(self.model.storage.data)


def right(precision, expected):
    losses = Training(DEVICE, precision).losses()
    far = np.max(abs(losses / expected - 1))
    assert far <= BOUND[precision], f"losses {losses} are off by {far:.1e}"
    return f"off by {far:.1e}"


def same_bits(precision, graph):
    first, second = Training(DEVICE, precision).weights(), Training(DEVICE, precision, graph=graph).weights()
    assert np.array_equal(first, second), f"other bits, by up to {np.max(abs(first - second)):.1e}"


def speed(precision, graph, steps=20):
    training = Training(DEVICE, precision, 1024, graph)
    training.losses()
    began = time.perf_counter()
    losses = [training.step().loss for _ in range(steps)]
    queued = time.perf_counter() - began
    float(losses[-1])
    whole = time.perf_counter() - began
    return f"{1e3 * whole / steps:.2f} ms a step, queued in {1e3 * queued / steps:.2f} ms"


def too_large():
    try:
        Training(DEVICE, "float32", 1 << 17).step()
    except (OutOfMemory, MemoryError) as error:
        return f"{type(error).__name__}: {error}"[:200]
    return "there was enough memory"


def checks():
    """(name, function) of each check."""
    with kernels.using("numpy"):  # the other kernels of the CPU take most of a minute to compile
        expected = Training("cpu", "float32").losses()
    for precision in ("float32",) if DRY else BOUND:
        yield f"{precision} against NumPy", partial(right, precision, expected)
        yield f"{precision}, twice", partial(same_bits, precision, False)
        if not DRY:
            yield f"{precision}, as a graph", partial(same_bits, precision, True)
            yield f"speed, {precision}", partial(speed, precision, False)
            yield f"speed, {precision}, as a graph", partial(speed, precision, True)
    if not DRY:
        yield "a batch beyond memory", too_large


errors = 0
for name, check in checks():
    began = time.perf_counter()
    try:
        said = check() or "right"
    except Exception:
        errors += 1
        said = traceback.format_exc(limit=-6)
    print(f"{name}: {said} ({time.perf_counter() - began:.1f} s)")
print(f"{errors} errors")
sys.exit(errors)
