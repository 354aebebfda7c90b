"""tinyvit bench"""

import json
import sys
from dataclasses import dataclass

from tinyvit.cli.parsing import parse
from tinyvit.files import check_folder, expanded, write

SCALING_ROUNDS = 3  # at most


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
    scaling: bool = False
    """Measure how time and memory of a training step grow with tokens, width, depth and batch, by the last of the
    levels and in at most three rounds; alone unless there are --cases. The picture goes to --out."""
    json: bool = False
    """Print one JSON object instead of tables."""
    out: str | None = None
    """Folder to write bench.json, bench.txt and scaling.png to."""


def bench(rest):
    """tinyvit bench; status 1 if something could not be measured that should have been."""
    options = parse(BenchOptions, rest, "tinyvit bench")

    from tinyvit.bench import machine, run, scaling
    from tinyvit.bench.cases import CASES
    from tinyvit.bench.table import case_table, heading
    from tinyvit.kernels import available, using
    from tinyvit.models.registry import looked_up
    from tinyvit.progress import tqdm
    from tinyvit.training.threads import at_once, thread_count

    if options.rounds < 1:
        raise ValueError(f"rounds must be at least 1, got {options.rounds}")
    if options.scaling and options.out is None:
        raise ValueError("--scaling draws a picture; say with --out which folder it goes to")
    names = dict.fromkeys(options.cases) or (() if options.scaling else CASES)
    cases, threads = [looked_up(CASES, name, "case") for name in names], at_once(thread_count(options.threads))
    for level in options.kernels:
        with using(level):  # raises for a level that can't be used
            pass
    levels = tuple(dict.fromkeys(options.kernels)) or available()
    folder = None if options.out is None else expanded(options.out)
    if folder is not None:  # made before minutes are spent on results that can't be written
        check_folder(folder)
        folder.mkdir(parents=True, exist_ok=True)

    settings = {"cases": [case.name for case in cases], "kernels": list(levels), "threads": threads,
                "rounds": options.rounds, "left_out": run.contestants(levels)[-1]}  # fmt: skip
    result, texts = {"machine": machine.describe(), "settings": settings, "cases": []}, []
    parts = [("cases", cases, levels, options.rounds, True)]
    if options.scaling:
        grid = {case.title: case for axis in scaling.cases().values() for case in axis}
        result["scaling"] = []
        parts.append(("scaling", grid.values(), levels[-1:], min(options.rounds, SCALING_ROUNDS), False))

    def tell(text):
        texts.append(text + "\n")
        if not options.json:
            with tqdm.external_write_mode(sys.stdout):
                print(text, flush=True)

    tell(heading(result["machine"], settings))
    for part, these, own_levels, rounds, products in parts:
        found = run.run(these, own_levels, threads, rounds, products=products)
        for case in tqdm(found, total=len(these), unit=" cases", disable=not sys.stderr.isatty(), leave=False):
            result[part].append(case)
            tell(f"\n{case_table(case)}")
    if options.json:
        print(json.dumps(result, allow_nan=False))
    if folder is not None:
        write(folder / "bench.json", (json.dumps(result, indent=1, allow_nan=False) + "\n").encode())
        write(folder / "bench.txt", "".join(texts).encode())
        if options.scaling:
            write(folder / "scaling.png", scaling.draw(result["scaling"], result["machine"]["processor"]))
    return int(any(map(run.failed, result["cases"] + result.get("scaling", []))))
