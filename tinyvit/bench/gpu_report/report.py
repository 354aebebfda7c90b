"""The parts of the report, one after the other; an error in one doesn't stop the others."""

import json
import math
import time
from dataclasses import asdict, dataclass
from functools import partial

from tinyvit.backend import current
from tinyvit.bench.gpu_report import card, comparison, page, recipe, suite, times
from tinyvit.files import write

PARTS = {
    "tests": "run the tests that need a GPU",
    "compare": "compare NumPy with CuPy: every operation, whole models, the same training twice",
    "steps": "time training steps, their kernels, and PyTorch's steps",
    "train": "train the recipe cifar10",
}

UNFINISHED = "this part was not finished"


@dataclass(frozen=True)
class Settings:
    """Options of the report.

    dry_run   the same code on the CPU, with as little work as can be
    minutes   for all of it; the training gets what is left
    compile   whether PyTorch's steps are also timed under torch.compile
    quick     fewer turns of the steps, fewer examples of the tests, and one epoch
    """

    device: str
    dry_run: bool
    parts: tuple[str, ...]
    precisions: tuple[str, ...]
    batch_size: int
    minutes: float
    train_precision: str
    data_dir: str | None = None
    compile: bool = True
    quick: bool = False


def carry_out(settings, folder, show=lambda text: None):
    """Run the parts; returns the report, a dict, which is also in the folder, after each part anew."""
    with current(settings.device):
        return parts_of(settings, folder, show)


def parts_of(settings, folder, show):
    """`carry_out`, on its device."""
    started = time.perf_counter()
    report = {"settings": asdict(settings), "card": card.describe(settings.device), "parts": {}}
    show(page.heading(report))

    def left():
        return 60 * settings.minutes - (time.perf_counter() - started)

    def keep(part, result):
        report["parts"][part] = as_json({**result, "seconds": time.perf_counter() - begun})
        report["seconds"] = time.perf_counter() - started
        write(folder / "gpu-report.json", (json.dumps(report, indent=1, allow_nan=False) + "\n").encode())
        write(folder / "gpu-report.txt", page.text(report).encode())

    def keep_so_far(part, result):
        keep(part, {"problem": UNFINISHED} | result)

    def time_to_compile():  # for which torch.compile takes most of a minute: the training needs the time more
        return "train" not in settings.parts or left() > 60 * settings.minutes / 2

    run = {
        "tests": lambda: suite.run(settings, left() / 3),
        "compare": lambda: comparison.run(settings),
        "steps": lambda: times.run(settings, time_to_compile, partial(keep_so_far, "steps")),
        "train": lambda: recipe.run(settings, left(), partial(keep_so_far, "train")),
    }
    for part in settings.parts:
        begun = time.perf_counter()
        try:
            result = run[part]()
        except Exception as error:  # the other parts have to be reported all the same
            result = {**report["parts"].get(part, {}), "problem": " ".join(f"{type(error).__name__}: {error}".split())}
        keep(part, result)
        show(page.part(part, report["parts"][part]))
    return report


def as_json(x):
    """A result with None for NaN and infinity, which JSON lacks."""
    if isinstance(x, dict):
        return {name: as_json(value) for name, value in x.items()}
    if isinstance(x, (list, tuple)):
        return [as_json(value) for value in x]
    return None if isinstance(x, float) and not math.isfinite(x) else x
