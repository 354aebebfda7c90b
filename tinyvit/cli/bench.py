"""tinyvit bench"""

import json
import sys
from dataclasses import dataclass
from itertools import chain

from tinyvit.cli.parsing import check_least
from tinyvit.files import check_folder, expand_path, write

SCALING_ROUNDS = 3  # at most


@dataclass(frozen=True)
class Bench:
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

    def __call__(self):
        from tinyvit.bench import machine, run, scaling
        from tinyvit.bench.cases import CASES
        from tinyvit.bench.table import case_table, heading
        from tinyvit.levels import available, usable_level
        from tinyvit.progress import tqdm
        from tinyvit.registry import look_up
        from tinyvit.training.threads import concurrent_threads, thread_count

        check_least(self, rounds=1)
        if self.scaling and self.out is None:
            raise ValueError("--scaling draws a picture; say with --out which folder it goes to")
        names = dict.fromkeys(self.cases) or (() if self.scaling else CASES)
        cases = [look_up(CASES, name, "case") for name in names]
        threads = concurrent_threads(thread_count(self.threads))
        for level in self.kernels:
            usable_level(level, "kernels")
        levels = tuple(dict.fromkeys(self.kernels)) or available()
        folder = None if self.out is None else expand_path(self.out)
        if folder is not None:  # made before minutes are spent on results that can't be written
            check_folder(folder)
            folder.mkdir(parents=True, exist_ok=True)

        settings = {"cases": [case.name for case in cases], "kernels": list(levels), "threads": threads,
                    "rounds": self.rounds, "left_out": run.contestants(levels)[-1]}  # fmt: skip
        result, texts = {"machine": machine.describe(), "settings": settings, "cases": []}, []

        def tell(text):
            texts.append(text + "\n")
            if not self.json:
                with tqdm.external_write_mode(sys.stdout):
                    print(text, flush=True)

        tell(heading(result["machine"], settings))
        found = run.run(cases, levels, threads, self.rounds)
        if self.scaling:
            grid = list({case.title: case for axis in scaling.cases().values() for case in axis}.values())
            grown = run.run(grid, levels[-1:], threads, min(self.rounds, SCALING_ROUNDS), products=False)
            cases, found = cases + grid, chain(found, grown)
        for case in tqdm(found, total=len(cases), unit=" cases", disable=not sys.stderr.isatty(), leave=False):
            result["cases"].append(case)
            tell(f"\n{case_table(case)}")
        if self.json:
            print(json.dumps(result, allow_nan=False))
        if folder is not None:
            write(folder / "bench.json", (json.dumps(result, indent=1, allow_nan=False) + "\n").encode())
            write(folder / "bench.txt", "".join(texts).encode())
            if self.scaling:
                write(folder / "scaling.png", scaling.draw(result["cases"], result["machine"]["processor"]))
        return int(any(map(run.has_failed, result["cases"])))
