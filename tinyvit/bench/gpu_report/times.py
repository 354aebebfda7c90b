"""Training steps timed: ours and PyTorch's in turns, what the card can do at best, and where our time goes."""

import time
from dataclasses import replace
from functools import partial
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
from tinyvit.training.cuda_graph import StepGraphs

CONFIG = ViTConfig(img_size=32, patch_size=4, embed_dim=192, depth=9, num_heads=12, mlp_ratio=2.0)
DRY = replace(preset("digits").model, drop_rate=0.0, drop_path_rate=0.0)
TURN = 0.4       # seconds that a turn lasts at least
ROUNDS = 5
LONGEST = 85    # characters of a reason
TOLERANCE = {"float32": 1e-4, "tf32": 3e-3, "bfloat16": 3e-2}  # between the second steps' losses, ours and PyTorch's


def run(settings, time_to_compile=lambda: True, keep=lambda result: None):
    """{"ceilings": …, "steps": [one row per precision]}; `keep` gets what there is whenever there is more."""
    config = DRY if settings.dry_run else CONFIG
    case = ModelCase("digits" if settings.dry_run else "vit-9x192", "train", settings.batch_size, config)
    best, finished = ceilings.measure(settings), []

    def result(*unfinished):
        rows = [*finished, *unfinished]
        wrong = [row["disagreement"] for row in rows if row["disagreement"]]
        found = {"case": case.title, "ceilings": best, "steps": rows}
        return found | ({"problem": "; ".join(wrong)} if wrong else {})

    for precision in settings.precisions:
        for row in step_rows(settings, case, precision, best, time_to_compile):
            keep(result(row))
        finished.append(row)
    return result()


def step_rows(settings, case, precision, best, time_to_compile):
    """The row of a precision: beside PyTorch eager first, and then, all anew, beside the compiled one, too."""
    contest = Contest(settings, case, precision)
    contest.invite("torch")
    if settings.device != "cpu":
        contest.invite("graph")
    contest.play()
    busy = profile.of_a_step(contest.players["tinyvit"], settings)
    yield contest.row(best, busy)
    if not settings.compile:
        contest.left_out["compile"] = "not asked for"
    elif not time_to_compile():
        contest.left_out["compile"] = "no time was left for it"
    else:
        contest.invite("compile")
        if "compile" in contest.players:
            contest.play()
    yield contest.row(best, busy)


class Contest:
    """Steps of one model, batch and precision, timed in turns by who takes them.

    players    functions that queue a step, by name
    left_out   reasons, by name
    losses     of each one's second step: were they not equal, times would mean nothing
    """

    def __init__(self, settings, case, precision):
        self.settings, self.case, self.precision = settings, case, precision
        self.players, self.left_out, self.losses = {}, {}, {}
        self.turns, self.host = {}, None
        self.add("tinyvit", ours(case, settings.device, precision))

    def add(self, name, step):
        """Take the first steps, in which kernels are compiled."""
        losses = [step() for _ in range(3)]
        synchronize(self.settings.device)
        self.losses[name], self.players[name] = float(losses[1]), step

    def invite(self, name):
        """Add PyTorch, "torch" or "compile", or our own step as a CUDA "graph", or note why it can't be."""
        try:
            if name == "graph":
                self.add(name, ours(self.case, self.settings.device, self.precision, replayed=True))
            else:
                self.add(name, rival(self.case, self.settings, self.precision, name == "compile"))
        except Exception as error:  # it is not installed, has no GPU, can't compile here, or has too little memory
            self.left_out[name] = in_a_line(error, LONGEST)

    def play(self):
        """Time everybody in turns."""
        device = self.settings.device
        repeats = {name: repeats_of(step, device) for name, step in self.players.items()}
        self.turns = {name: [] for name in self.players}
        for _ in range(rounds(self.settings)):
            for name, step in self.players.items():
                self.turns[name].append(turn(step, repeats[name], device))
        self.host = median(queueing(self.players["tinyvit"], device) for _ in range(rounds(self.settings)))

    def row(self, best, busy):
        """Median times by who takes the step, and the shares of the card's best that ours reaches."""
        seconds = {name: median(each) for name, each in self.turns.items()}
        operations = 2 * self.case.multiply_adds()
        rate, copy = best["operations_per_second"].get(self.precision), best["bytes_per_second"]
        return {
            "precision": self.precision,
            "seconds": seconds,
            "turns": self.turns,
            "images_per_second": {name: self.case.batch_size / each for name, each in seconds.items()},
            "ratio": {name: seconds[name] / seconds["tinyvit"] for name in seconds if name != "tinyvit"},
            "host_seconds": self.host,  # to queue a step: if this is as long as the step, the card waits for Python
            "operations": operations,
            "of_best_rate": operations / seconds["tinyvit"] / rate if rate else None,
            "of_copy_bandwidth": busy["bytes"] / seconds["tinyvit"] / copy if busy["bytes"] else None,
            **busy,
            "losses": dict(self.losses),
            "disagreement": disagreement(self.losses, self.precision),
            "left_out": dict(self.left_out),
        }


def rounds(settings):
    """How many turns each has."""
    return 1 if settings.dry_run else 3 if settings.quick else ROUNDS


def ours(case, device, precision, replayed=False):
    """A training step of ours, queued on the device; returns the loss, without waiting for it."""
    model = ViT(case.config, seed=0, device=device, precision=precision)
    optimizer = AdamW(model)
    images, targets = (to_device(array, device) for array in steps.batch(case, "float32"))
    with model.storage.on_device():
        replay = partial(StepGraphs(device).run, case.title) if replayed else None

    def step():
        ctx = Context(training=True, key=Key(seed=0, step=0))
        return train_step(model, optimizer, images, targets, ctx, replay=replay).loss

    return step


def rival(case, settings, precision, compiled):
    from tinyvit.bench.gpu_report.torch_step import torch_step

    return torch_step(case, settings.device, precision, compiled)


def repeats_of(step, device):
    """The number of steps per turn."""
    return max(1, round(TURN / turn(step, 2, device)))


def turn(step, repeats, device):
    """Seconds per step, the mean of several."""
    synchronize(device)
    started = time.perf_counter()
    for _ in range(repeats):
        step()
    synchronize(device)
    return (time.perf_counter() - started) / repeats


def queueing(step, device):
    """Seconds to queue one step for a card that has nothing else to do: only a full queue makes Python wait for it."""
    synchronize(device)
    started = time.perf_counter()
    step()
    queued = time.perf_counter() - started
    synchronize(device)
    return queued


def disagreement(losses, precision):
    """A warning if the losses of the second steps differ by more than rounding, so that times mean nothing."""
    each = np.array(list(losses.values()))
    if np.ptp(each) <= TOLERANCE[precision] * np.max(abs(each)):  # which no NaN is
        return None
    return f"{precision}: not the same work: {', '.join(f'{name} got {loss:.6g}' for name, loss in losses.items())}"
