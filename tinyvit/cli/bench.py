"""tinyvit bench"""

import json
import warnings
from dataclasses import dataclass
from typing import Literal

from tinyvit.cli.parsing import parse
from tinyvit.files import check_folder, expanded


@dataclass(frozen=True)
class BenchOptions:
    """Time tinyvit and, if it is installed, PyTorch on the same work: one process each, taking turns. Beside the times
    stands the floor, what the matrix products alone would take at the best rate that this machine reaches."""

    cases: tuple[str, ...] = ()
    """Which of vit, vit-9x192, patch8, digits, cifar10-resnet, cifar10-hybrid, cifar10-swin, cifar10-coatnet (training
    steps), ti16 (inference), attention-65, attention-65-bias, attention-197, attention-577, attention-1025, conv-3-64,
    conv-64, conv-64-128, conv-64-128-1x1, conv-128, conv-128-256, conv-256, conv-256-512, conv-512,
    conv-64-depthwise; by default all."""
    kernels: tuple[str, ...] = ()
    """Levels of tinyvit's kernels: reference, numpy, fast; by default all that can be used here."""
    rounds: int = 10
    """Turns that each of them has."""
    threads: int | None = None
    """CPU threads; by default as many as there are cores."""
    precision: Literal["float32", "float64"] = "float32"
    """Number format of the computation."""
    batch_size: int | None = None
    """Images in a batch, or sequences; by default the case's own."""
    torch: bool = True
    """Compare with PyTorch."""
    compile: bool = False
    """Compare with torch.compile, too: that takes a C++ compiler, and up to a minute for each case."""
    scaling: bool = False
    """Measure how time and memory of a training step grow with tokens, width, depth and batch; alone unless there are
    --cases. The picture goes to --out."""
    json: bool = False
    """Print one JSON object instead of tables."""
    out: str | None = None
    """Folder to write bench.json, bench.txt and scaling.png to."""


def bench(rest):
    """tinyvit bench; status 1 if something could not be measured that should have been."""
    options = parse(BenchOptions, rest, "tinyvit bench")
    settings = settings_of(options)
    folder = folder_of(options)

    from tinyvit.bench import machine
    from tinyvit.bench.report import carry_out, failures, save

    def show(text):
        if not options.json:
            print(text, flush=True)

    result, text = carry_out(settings, machine.describe(), options.scaling, show)
    if options.json:
        print(json.dumps(result, allow_nan=False))
    if folder is not None:
        show(f"\nwritten to {folder}: {', '.join(save(result, text, folder))}")
    return 1 if failures(result) else 0


def settings_of(options):
    """The `Settings` of the options; raises ValueError for invalid ones."""
    from tinyvit.bench.cases import CASES, case_named
    from tinyvit.bench.run import Settings
    from tinyvit.kernels import available, using
    from tinyvit.training.threads import MoreThreadsThanCores, at_once, cores, thread_count

    for name in ("rounds", "threads", "batch_size"):
        value = getattr(options, name)
        if value is not None and value < 1:
            raise ValueError(f"{name.replace('_', '-')} must be at least 1, got {value}")
    if options.scaling and options.out is None:
        raise ValueError("--scaling draws a picture; say with --out which folder it goes to")
    names = once_each(options.cases) or (() if options.scaling else tuple(CASES))
    cases = tuple(case_named(name, options.batch_size) for name in names)
    for level in options.kernels:
        with using(level):  # raises for a level that can't be used
            pass
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MoreThreadsThanCores)  # here they are fewer threads, not parts that take turns
        asked = thread_count(options.threads)
    threads = at_once(asked)
    if threads < asked:
        warnings.warn(
            f"{asked} threads were asked for; this process may use {cores()} cores, so it's {threads} threads",
            stacklevel=2,
        )
    return Settings(
        cases=cases,
        levels=once_each(options.kernels) or available(),
        threads=threads,
        rounds=options.rounds,
        precision=options.precision,
        torch=options.torch,
        compiled=options.compile,
    )


def once_each(names):
    return tuple(dict.fromkeys(names))


def folder_of(options):
    """The folder for --out, made before minutes are spent on results that can't be written."""
    if options.out is None:
        return None
    folder = expanded(options.out)
    check_folder(folder)
    folder.mkdir(parents=True, exist_ok=True)
    return folder
