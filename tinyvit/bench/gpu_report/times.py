"""Training steps timed: ours and PyTorch's in turns, what the card can do at best, and where our time goes."""

import time
from collections import defaultdict
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from math import prod
from statistics import median

import numpy as np

from tinyvit import functional as F
from tinyvit.backend import library
from tinyvit.bench import steps
from tinyvit.bench.cases import CASES, Case
from tinyvit.bench.table import duration
from tinyvit.bench.worker import in_a_line
from tinyvit.training import preset

DRY = replace(preset("digits").model, drop_rate=0.0, drop_path_rate=0.0)
BATCH = 1024       # images
TURN = 0.4         # seconds that a turn lasts at least
ROUNDS = 5
SIDE = 8192        # of matrices
BUSY = 6           # products of about 20 ms that keep the card busy while a step is queued
SHOWN = 40         # kernels
TOLERANCE = {"float32": 1e-4, "tf32": 3e-3}  # between the second steps' losses; 3e-2 in 16 bits
NAMES = {"tinyvit": "tinyvit", "graph": "a CUDA graph", "torch": "PyTorch eager", "compile": "torch.compile"}


def run(options):
    """{"case": …, "steps": [one row per precision]}."""
    config = DRY if options.dry_run else CASES["vit-9x192"].shape
    case = Case("digits" if options.dry_run else "vit-9x192", "train", 8 if options.dry_run else BATCH, config)
    rows = [row(options, case, precision) for precision in options.precisions]
    wrong = [row["disagreement"] for row in rows if row["disagreement"]]
    return {"case": case.title, "steps": rows} | ({"problem": "; ".join(wrong)} if wrong else {})


def row(options, case, precision):
    """Median times by who takes the step, and where the time of ours goes."""
    device, players, losses, left_out = options.device, {}, {}, {}
    contest = {"tinyvit": partial(steps.training_step, case, precision, device=device)}
    if device != "cpu":
        contest["graph"] = partial(steps.training_step, case, precision, device=device, replayed=True)
    contest["torch"] = partial(theirs, case, device, precision)
    if not options.dry_run:
        contest["compile"] = partial(theirs, case, device, precision, compiled=True)
    for name, make in contest.items():
        try:
            step = make()
            losses[name] = [float(step()) for _ in range(3)][1]  # in the first steps kernels are compiled
            players[name] = step
        except Exception as error:  # it is not installed, has no GPU, can't compile here, or has too little memory
            if name == "tinyvit":
                raise
            left_out[name] = in_a_line(error, 85)
    repeats = {name: max(1, round(TURN / seconds_of(step, device, 2))) for name, step in players.items()}
    turns = {name: [] for name in players}
    for _ in range(1 if options.dry_run else 3 if options.quick else ROUNDS):
        for name, step in players.items():
            turns[name].append(seconds_of(step, device, repeats[name]))
    seconds = {name: median(each) for name, each in turns.items()}
    return {
        "precision": precision,
        "seconds": seconds,
        "images_per_second": {name: case.batch_size / each for name, each in seconds.items()},
        "ratio": {name: each / seconds["tinyvit"] for name, each in seconds.items()},
        "kernels": [] if device == "cpu" else kernels_of(players["tinyvit"], device, 64 if options.dry_run else SIDE),
        "losses": losses,
        "disagreement": disagreement(losses, precision),
        "left_out": left_out,
    }


def theirs(case, device, precision, compiled=False):
    """PyTorch's: tf32 is its switch of that name, 16 bits its automatic mixed precision, weights in float32 as ours."""
    import torch

    from tinyvit.bench.torch_steps import training_step

    low = getattr(torch, precision) if precision in ("bfloat16", "float16") else None
    compiler = {"compiler": torch.compile} if compiled else {}
    queue = training_step(case, "float32", torch.channels_last, device, low, **compiler)

    def step():  # the switch is the process's, and other steps may have turned it since
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"
        return queue()

    return step


def disagreement(losses, precision):
    """A warning if the losses of the second steps differ by more than rounding, so that times mean nothing."""
    each = np.array(list(losses.values()))
    if np.ptp(each) <= TOLERANCE.get(precision, 3e-2) * np.max(abs(each)):  # which no NaN is
        return None
    return f"{precision}: not the same work: {', '.join(f'{name} got {loss:.6g}' for name, loss in losses.items())}"


def synchronize(device):
    """Wait until the device has finished all queued work."""
    if device != "cpu":
        library(device).cuda.get_current_stream().synchronize()


def seconds_of(function, device, repeats):
    """Seconds per call, the mean of several."""
    synchronize(device)
    started = time.perf_counter()
    for _ in range(repeats):
        function()
    synchronize(device)
    return (time.perf_counter() - started) / repeats


def kernels_of(step, device, side):
    """The longest kernels and products of a step: each with its launches, bytes and seconds.

    Events surround each launch, behind products that keep the card busy while the step is queued: the gaps between
    launches would count otherwise. Bytes are those of the arrays that a kernel was given, each once. What CuPy computes
    by itself is not seen.
    """
    from tinyvit.kernels.cuda import source

    cupy, launches = library(device), []
    operand = cupy.ones((side, side), "float32")

    @contextmanager
    def around(name, arrays):
        begun, ended = cupy.cuda.Event(), cupy.cuda.Event()
        begun.record()
        yield
        ended.record()
        launches.append((described(name, arrays), sum(array.nbytes for array in arrays), begun, ended))

    synchronize(device)
    for _ in range(BUSY):
        F.linear(operand, operand)
    with source.watching(around):
        step()
    synchronize(device)
    found = defaultdict(lambda: np.zeros(3))
    for name, size, begun, ended in launches:
        found[name] += (1, size, cupy.cuda.get_elapsed_time(begun, ended) / 1e3)
    rows = [{"name": name, "launches": int(count), "bytes": size, "seconds": seconds}
            for name, (count, size, seconds) in found.items()]  # fmt: skip
    return sorted(rows, key=lambda row: -row["seconds"])[:SHOWN]


def described(name, arrays):
    """A launch's name, which for products contains their shapes."""
    if name not in ("product", "products"):
        return name
    a, b, out = arrays
    (*batches, m, k), n = a.shape, b.shape[-1]
    return f"product {f'{prod(batches)} of ' if batches else ''}{m}×{k}×{n}, {a.dtype} → {out.dtype}"


def lines(result):
    """The result as text."""
    shown = [result["case"]]
    for row in result["steps"]:
        shown.append(row["precision"])
        shown += [f"  {NAMES[name]:<14} {duration(seconds):>9}  {row['images_per_second'][name]:>9,.0f} images/s, "
                  f"{row['ratio'][name]:.2f} × tinyvit's time" for name, seconds in row["seconds"].items()]  # fmt: skip
        shown += [f"  {NAMES[name]:<14} left out: {why}" for name, why in row["left_out"].items()]
        if row["kernels"]:
            shown.append(f"  {'kernel':<44} {'launches':>9} {'time':>10} {'TB/s':>8}")
        for kernel in row["kernels"]:
            moved = kernel["bytes"] / max(kernel["seconds"], 1e-9) / 1e12
            shown.append(f"  {kernel['name']:<44} {kernel['launches']:>9} {duration(kernel['seconds']):>10} "
                         f"{moved:>8.2f}")  # fmt: skip
    return shown
