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
from tinyvit.backend import library, low_precision_dtype, products_in
from tinyvit.bench import steps
from tinyvit.bench.cases import CASES, Case
from tinyvit.bench.table import duration
from tinyvit.bench.worker import in_a_line
from tinyvit.training import preset

DRY = replace(preset("digits").model, drop_rate=0.0, drop_path_rate=0.0)
TURN = 0.4         # seconds that a turn lasts at least
ROUNDS = 5
SIDE = 8192        # of matrices
REPEATS = 10       # of a product
BUSY = 6           # products of about 20 ms that keep the card busy while a step is queued
SHOWN = 40         # kernels
TOLERANCE = {"float32": 1e-4, "tf32": 3e-3}  # between the second steps' losses; 3e-2 in 16 bits
NAMES = {"tinyvit": "tinyvit", "graph": "a CUDA graph", "torch": "PyTorch eager", "compile": "torch.compile"}


def run(options, keep=lambda result: None):
    """{"case": …, "steps": [one row per precision]}; `keep` gets what there is."""
    config = DRY if options.dry_run else CASES["vit-9x192"].shape
    case, rows = Case("digits" if options.dry_run else "vit-9x192", "train", options.batch_size, config), []
    result = {"case": case.title, "steps": rows}
    for precision in options.precisions:
        rows.append(row(options, case, precision))
        keep(result)
    wrong = [row["disagreement"] for row in rows if row["disagreement"]]
    return result | ({"problem": "; ".join(wrong)} if wrong else {})


def row(options, case, precision):
    """Median times by who takes the step, and where the time of ours goes."""
    device, players, losses, left_out = options.device, {}, {}, {}
    contest = {"tinyvit": partial(steps.training_step, case, precision, device=device)}
    if device != "cpu":
        contest["graph"] = partial(steps.training_step, case, precision, device=device, replayed=True)
    contest["torch"] = partial(theirs, case, device, precision)
    if options.compile:
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
    turns, host = {name: [] for name in players}, []
    for _ in range(1 if options.dry_run else 3 if options.quick else ROUNDS):
        for name, step in players.items():
            turns[name].append(seconds_of(step, device, repeats[name]))
        host.append(queueing(players["tinyvit"], device))
    seconds = {name: median(each) for name, each in turns.items()}
    return {
        "precision": precision,
        "seconds": seconds,
        "turns": turns,
        "images_per_second": {name: case.batch_size / each for name, each in seconds.items()},
        "ratio": {name: each / seconds["tinyvit"] for name, each in seconds.items()},
        "host_seconds": median(host),  # to queue a step: if it is as long as the step, the card waits for Python
        "of_best_rate": 2 * case.multiply_adds() / seconds["tinyvit"] / product_rate(options, precision),
        "late": None,
        "kernels": [],
        **({} if device == "cpu" else kernels_of(players["tinyvit"], device, 64 if options.dry_run else SIDE)),
        "losses": losses,
        "disagreement": disagreement(losses, precision),
        "left_out": left_out,
    }


def theirs(case, device, precision, compiled=False):
    """PyTorch's: tf32 is its switch of that name, 16 bits its automatic mixed precision, weights in float32 as ours."""
    import torch

    from tinyvit.bench.torch_steps import training_step

    low = getattr(torch, precision) if precision in ("bfloat16", "float16") else None
    compiler = torch.compile if compiled else lambda function: function
    queue = training_step(case, "float32", compiler, torch.channels_last, device, low)

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


def queueing(step, device):
    """Seconds to queue one step for a card that has nothing else to do: only a full queue makes Python wait for it."""
    synchronize(device)
    started = time.perf_counter()
    step()
    return time.perf_counter() - started


def product_rate(options, precision):
    """Operations a second of a product of two random matrices, by the linear layer of the models."""
    side, xp = 256 if options.dry_run else SIDE, library(options.device)
    dtype, generator = low_precision_dtype("float32" if precision == "tf32" else precision), np.random.default_rng(0)
    a, b = (xp.asarray(generator.standard_normal((side, side), "float32").astype(dtype)) for _ in range(2))
    with products_in("tf32" if precision == "tf32" else "float32"):
        return 2 * side**3 / min(seconds_of(lambda: F.linear(a, b), options.device, REPEATS) for _ in range(2))


def kernels_of(step, device, side):
    """{"late": …, "kernels": the longest ones}: each kernel and product with its launches, operations, bytes, seconds.

    Events surround each launch, behind products that keep the card busy while the step is queued: the gaps between
    launches would count otherwise. `late` says that the card had finished those before all was queued, so that times
    contain gaps. Bytes are those of the arrays that a kernel was given, each once. What CuPy computes by itself is not
    seen.
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
        launches.append((*described(name, arrays), sum(array.nbytes for array in arrays), begun, ended))

    synchronize(device)
    with products_in("float32"):
        for _ in range(BUSY):
            F.linear(operand, operand)
    lead = cupy.cuda.Event()
    lead.record()
    with source.watching(around):
        step()
    late = bool(lead.done)
    synchronize(device)
    found = defaultdict(lambda: np.zeros(4))
    for name, operations, size, begun, ended in launches:
        found[name] += (1, operations, size, cupy.cuda.get_elapsed_time(begun, ended) / 1e3)
    rows = [{"name": name, "launches": int(count), "operations": operations, "bytes": size, "seconds": seconds}
            for name, (count, operations, size, seconds) in found.items()]  # fmt: skip
    return {"late": late, "kernels": sorted(rows, key=lambda row: -row["seconds"])[:SHOWN]}


def described(name, arrays):
    """A launch's name, which for products contains their shapes, and its multiplications and additions, or 0."""
    if name not in ("product", "products"):
        return name, 0
    a, b, out = arrays
    (*batches, m, k), n = a.shape, b.shape[-1]
    many = f"{prod(batches)} of " if batches else ""
    return f"product {many}{m}×{k}×{n}, {a.dtype} → {out.dtype}", 2 * prod(batches) * m * k * n


def lines(result):
    """The result as text."""
    shown = [result["case"]]
    for row in result["steps"]:
        best, late = 100 * row["of_best_rate"], "; late: times of kernels contain gaps" if row["late"] else ""
        shown.append(f"{row['precision']}: {best:.0f} % of the best rate of products; queued in "
                     f"{duration(row['host_seconds'])}{late}")  # fmt: skip
        shown += [f"  {NAMES[name]:<14} {duration(seconds):>9}  {row['images_per_second'][name]:>9,.0f} images/s, "
                  f"{row['ratio'][name]:.2f} × tinyvit's time" for name, seconds in row["seconds"].items()]  # fmt: skip
        shown += [f"  {NAMES[name]:<14} left out: {why}" for name, why in row["left_out"].items()]
        if row["kernels"]:
            shown.append(f"  {'kernel':<44} {'launches':>9} {'time':>10} {'TB/s':>8} {'Tflop/s':>8}")
        for kernel in row["kernels"]:
            moved, computed = (kernel[what] / max(kernel["seconds"], 1e-9) / 1e12 for what in ("bytes", "operations"))
            shown.append(f"  {kernel['name']:<44} {kernel['launches']:>9} {duration(kernel['seconds']):>10} "
                         f"{moved:>8.2f} {computed:>8.1f}")  # fmt: skip
    return shown
