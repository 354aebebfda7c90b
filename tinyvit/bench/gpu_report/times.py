"""Training steps timed: ours and PyTorch's in turns, what the card can do at best, and where our time goes."""

import time
from collections import defaultdict
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from math import prod
from statistics import median

import numpy as np

from tinyvit import functional as F
from tinyvit.backend import library
from tinyvit.bench.cases import CASES, Case
from tinyvit.bench.run import disagreement
from tinyvit.bench.table import columns, duration
from tinyvit.bench.worker import error_line
from tinyvit.training import preset

DRY_RUN_MODEL = replace(preset("digits").model, drop_rate=0.0, drop_path_rate=0.0)
BATCH_SIZE = 1024       # images
TURN_SECONDS = 0.4         # seconds that a turn lasts at least
ROUNDS = 5
MATRIX_SIDE = 8192        # of matrices
QUEUED_PRODUCTS = 6           # products of about 20 ms that keep the card busy while a step is queued
MAX_KERNELS = 40         # kernels
TOLERANCE = {"float32": 1e-4, "tf32": 3e-3}  # between the second steps' losses; 3e-2 in 16 bits


def run(options, seconds):
    """{"case": …, "steps": [one row per precision]}, and "problem" unless all took the same steps; and as text."""
    case = replace(CASES["vit-9x192"], batch_size=BATCH_SIZE)
    if options.dry_run:
        case = Case("digits", "train", 8, DRY_RUN_MODEL)
    rows = [row(options, case, precision) for precision in options.precisions]
    wrong = [row["disagreement"] for row in rows if row["disagreement"]]
    result = {"case": case.title, "steps": rows} | ({"problem": "; ".join(wrong)} if wrong else {})
    return result, [case.title, *(line for row in rows for line in row_lines(row, case.batch_size))]


def row(options, case, precision):
    """Median times by who takes the step, and where the time of ours goes."""
    device, players, losses, left_out = options.device, {}, {}, {}
    contest = {"tinyvit": ("steps", {}), "PyTorch eager": ("torch_steps", {})}
    if device != "cpu":
        contest |= {"a CUDA graph": ("steps", {"replayed": True}), "torch.compile": ("torch_steps", {"compiled": True})}
    for name, (module, more) in contest.items():
        try:
            make = import_module(f"tinyvit.bench.{module}").training_step
            step = make(case, precision, device=device, **more)
            losses[name] = [float(step()) for _ in range(3)][1]  # in the first steps kernels are compiled
            players[name] = step
        except Exception as error:  # it is not installed, has no GPU, can't compile here, or has too little memory
            if name == "tinyvit":
                raise
            left_out[name] = error_line(error, 85)
    repeats = {name: max(1, round(TURN_SECONDS / seconds_of(step, device, 2))) for name, step in players.items()}
    turns = [{name: seconds_of(step, device, repeats[name]) for name, step in players.items()}
             for _ in range(1 if options.dry_run else 3 if options.quick else ROUNDS)]  # fmt: skip
    wrong, side = disagreement(losses, TOLERANCE.get(precision, 3e-2)), 64 if options.dry_run else MATRIX_SIDE
    return {
        "precision": precision,
        "seconds": {name: median(turn[name] for turn in turns) for name in players},
        "kernels": [] if device == "cpu" else kernels_of(players["tinyvit"], device, side),
        "losses": losses,
        "disagreement": wrong and f"{precision}: {wrong}",
        "left_out": left_out,
    }


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
        launches.append((launch_name(name, arrays), sum(array.nbytes for array in arrays), begun, ended))

    synchronize(device)
    for _ in range(QUEUED_PRODUCTS):
        F.linear(operand, operand)
    with source.watching(around):
        step()
    synchronize(device)
    found = defaultdict(lambda: np.zeros(3))
    for name, size, begun, ended in launches:
        found[name] += (1, size, cupy.cuda.get_elapsed_time(begun, ended) / 1e3)
    rows = [{"name": name, "launches": int(count), "bytes": size, "seconds": seconds}
            for name, (count, size, seconds) in found.items()]  # fmt: skip
    return sorted(rows, key=lambda row: -row["seconds"])[:MAX_KERNELS]


def launch_name(name, arrays):
    """A launch's name, which for products contains their shapes."""
    if name not in ("product", "products"):
        return name
    a, b, out = arrays
    (*batches, m, k), n = a.shape, b.shape[-1]
    return f"product {f'{prod(batches)} of ' if batches else ''}{m}×{k}×{n}, {a.dtype} → {out.dtype}"


def row_lines(row, batch_size):
    """A row as text."""
    yield row["precision"]
    for name, seconds in row["seconds"].items():
        yield (f"  {name:<14} {duration(seconds):>9}  {batch_size / seconds:>9,.0f} images/s, "
               f"{seconds / row['seconds']['tinyvit']:.2f} × tinyvit's time")  # fmt: skip
    for name, why in row["left_out"].items():
        yield f"  {name:<14} left out: {why}"
    kernels = [[kernel["name"], str(kernel["launches"]), duration(kernel["seconds"]),
                f"{kernel['bytes'] / max(kernel['seconds'], 1e-9) / 1e12:.2f}"] for kernel in row["kernels"]]
    yield from columns(["kernel", "launches", "time", "TB/s"], kernels) if kernels else ()
