"""Training steps timed: ours and PyTorch's in turns, what the card can do at best, and where our time goes."""

import time
from dataclasses import replace
from statistics import median

import numpy as np

from tinyvit.backend import Key, to_device
from tinyvit.bench import steps
from tinyvit.bench.cases import ModelCase
from tinyvit.bench.gpu_report import ceilings, profile
from tinyvit.bench.gpu_report.card import synchronize
from tinyvit.bench.worker import in_a_line
from tinyvit.models import ViT, ViTConfig
from tinyvit.nn import Context
from tinyvit.optim import AdamW
from tinyvit.training import preset, train_step

CONFIG = ViTConfig(img_size=32, patch_size=4, embed_dim=192, depth=9, num_heads=12, mlp_ratio=2.0)
DRY = replace(preset("digits").model, drop_rate=0.0, drop_path_rate=0.0)
TURN = 0.4       # seconds that a turn lasts at least
ROUNDS = 5
LONGEST = 85    # characters of a reason
TOLERANCE = {"float32": 1e-4, "tf32": 3e-3, "bfloat16": 3e-2}  # between the second steps' losses, ours and PyTorch's


def run(settings, time_to_compile=lambda: True):
    """{"ceilings": …, "steps": [one row per precision], "profile": …}."""
    config = DRY if settings.dry_run else CONFIG
    case = ModelCase("digits" if settings.dry_run else "vit-9x192", "train", settings.batch_size, config)
    best = ceilings.measure(settings)
    rows = [step_row(settings, case, precision, best, time_to_compile) for precision in settings.precisions]
    wrong = [row["disagreement"] for row in rows if row["disagreement"]]
    return {"case": case.title, "ceilings": best, "steps": rows} | ({"problem": "; ".join(wrong)} if wrong else {})


def step_row(settings, case, precision, best, time_to_compile):
    """Median times of a step at a precision, by who takes it, and the shares of the card's best that ours reaches."""
    device = settings.device
    players, left_out = {"tinyvit": ours(case, device, precision)}, {}
    for name in ("torch", "compile"):
        if name == "compile" and not (settings.compile and time_to_compile()):
            left_out[name] = "no time was left for it" if settings.compile else "not asked for"
            continue
        try:
            players[name] = rival(case, settings, precision, name == "compile")
        except Exception as error:  # PyTorch is not installed, or has no GPU
            left_out[name] = in_a_line(error, LONGEST)
    warm, times, host = {}, {name: [] for name in players}, []
    for name, step in list(players.items()):
        try:
            warm[name] = [step() for _ in range(3)][1]
            synchronize(device)
        except Exception as error:
            if name == "tinyvit":
                raise
            left_out[name] = in_a_line(error, LONGEST)  # it can't compile here, or has too little memory
            del players[name]
    losses = {name: float(loss) for name, loss in warm.items()}
    repeats = {name: repeats_of(step, device) for name, step in players.items()}
    for _ in range(1 if settings.dry_run else ROUNDS):
        for name, step in players.items():
            taken, queued = turn(step, repeats[name], device)
            times[name].append(taken)
            if name == "tinyvit":
                host.append(queued)
    seconds = {name: median(each) for name, each in times.items() if name in players}
    busy = profile.of_a_step(players["tinyvit"], settings)
    operations = 2 * case.multiply_adds()
    rate, copy = best["operations_per_second"].get(precision), best["bytes_per_second"]
    return {
        "precision": precision,
        "seconds": seconds,
        "turns": times,
        "images_per_second": {name: case.batch_size / each for name, each in seconds.items()},
        "ratio": {name: seconds[name] / seconds["tinyvit"] for name in seconds if name != "tinyvit"},
        "host_seconds": median(host),  # to queue a step: where this is as long as the step, the card waits for Python
        "operations": operations,
        "of_best_rate": operations / seconds["tinyvit"] / rate if rate else None,
        "bytes": busy["bytes"],
        "of_copy_bandwidth": busy["bytes"] / seconds["tinyvit"] / copy if busy["bytes"] else None,
        "kernels": busy["kernels"],
        "losses": losses,
        "disagreement": disagreement(losses, precision),
        "left_out": left_out,
    }


def ours(case, device, precision):
    """A training step of ours, queued on the device; returns the loss, without waiting for it."""
    model = ViT(case.config, seed=0, device=device, precision=precision)
    optimizer = AdamW(model)
    images, targets = (to_device(array, device) for array in steps.batch(case, "float32"))

    def step():
        ctx = Context(training=True, key=Key(seed=0, step=0))
        return train_step(model, optimizer, images, targets, ctx).loss

    return step


def rival(case, settings, precision, compiled):
    from tinyvit.bench.gpu_report.torch_step import torch_step

    return torch_step(case, settings.device, precision, compiled)


def repeats_of(step, device):
    """The number of steps per turn."""
    seconds, _ = turn(step, 2, device)
    return max(1, round(TURN / seconds))


def turn(step, repeats, device):
    """(seconds per step, seconds per step to queue it), the means of several steps."""
    synchronize(device)
    started = time.perf_counter()
    for _ in range(repeats):
        step()
    queued = time.perf_counter() - started
    synchronize(device)
    return (time.perf_counter() - started) / repeats, queued / repeats


def disagreement(losses, precision):
    """A warning if the losses of the second steps differ by more than rounding, so that times mean nothing."""
    each = np.array(list(losses.values()))
    if np.ptp(each) <= TOLERANCE[precision] * np.max(abs(each)):  # which no NaN is
        return None
    return f"{precision}: not the same work: {', '.join(f'{name} got {loss:.6g}' for name, loss in losses.items())}"
