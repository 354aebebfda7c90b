"""tinyvit bench"""

import json
import sys
from dataclasses import dataclass

from tinyvit.cli.parsing import parse
from tinyvit.files import check_folder, expanded, write


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
    """Measure how time and memory of a training step grow with tokens, width, depth and batch; alone unless there are
    --cases. The picture goes to --out."""
    json: bool = False
    """Print one JSON object instead of tables."""
    out: str | None = None
    """Folder to write bench.json, bench.txt and scaling.png to."""


def bench(rest):
    """tinyvit bench; status 1 if something could not be measured that should have been."""
    options = parse(BenchOptions, rest, "tinyvit bench")
    cases, levels, threads = checked(options)
    folder = None if options.out is None else expanded(options.out)
    if folder is not None:  # made before minutes are spent on results that can't be written
        check_folder(folder)
        folder.mkdir(parents=True, exist_ok=True)

    from tinyvit.bench import machine, run, scaling
    from tinyvit.bench.player import contestants
    from tinyvit.bench.table import case_table, heading, scaling_table
    from tinyvit.progress import tqdm

    settings = {"cases": [case.name for case in cases], "kernels": list(levels), "threads": threads,
                "rounds": options.rounds, "left_out": contestants(levels)[-1]}  # fmt: skip
    result, texts = {"machine": machine.describe(), "settings": settings, "cases": []}, []
    turns = run.turns(cases, levels, options.rounds)
    turns += run.turns(**scaling.plan(levels, options.rounds)) if options.scaling else 0
    with tqdm(total=turns, unit=" turns", disable=not sys.stderr.isatty(), leave=False, dynamic_ncols=True) as bar:

        def tell(text):
            texts.append(text + "\n")
            if not options.json:
                with tqdm.external_write_mode(sys.stdout):
                    print(text, flush=True)

        tell(heading(result["machine"], settings))
        for case in run.run(cases, levels, threads, options.rounds, after_turn=bar.update):
            result["cases"].append(case)
            tell(f"\n{case_table(case)}")
        if options.scaling:
            result["scaling"] = scaling.measure(levels, threads, options.rounds, after_turn=bar.update)
            tell(f"\n{scaling_table(result['scaling'])}")
    if options.json:
        print(json.dumps(result, allow_nan=False))
    if folder is not None:
        write(folder / "bench.json", (json.dumps(result, indent=1, allow_nan=False) + "\n").encode())
        write(folder / "bench.txt", "".join(texts).encode())
        if options.scaling:
            write(folder / "scaling.png", scaling.draw(result["scaling"], result["machine"]["processor"]))
    return 1 if run.failures(result) else 0


def checked(options):
    """(cases, levels of kernels, threads) of the options; raises ValueError for invalid ones."""
    from tinyvit.bench.cases import CASES
    from tinyvit.kernels import available, using
    from tinyvit.models.registry import looked_up
    from tinyvit.training.threads import at_once, thread_count

    for name in ("rounds", "threads"):
        value = getattr(options, name)
        if value is not None and value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")
    if options.scaling and options.out is None:
        raise ValueError("--scaling draws a picture; say with --out which folder it goes to")
    names = dict.fromkeys(options.cases) or (() if options.scaling else CASES)
    for level in options.kernels:
        with using(level):  # raises for a level that can't be used
            pass
    levels = tuple(dict.fromkeys(options.kernels)) or available()
    return [looked_up(CASES, name, "case") for name in names], levels, at_once(thread_count(options.threads))
