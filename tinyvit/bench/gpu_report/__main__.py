"""The command `python -m tinyvit.bench.gpu_report`: the parts one after the other; an error in one doesn't stop the
others, and the report is written anew after each of them."""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import tinyvit
from tinyvit.backend import as_device, current, gpu
from tinyvit.bench import machine
from tinyvit.bench.gpu_report import comparison, recipe, times
from tinyvit.files import expanded, write

ROOT = Path(tinyvit.__file__).parents[1]
TESTS = "tests/cuda"  # the rest of the suite needs packages that a machine with a GPU may do without
PARTS = {
    "tests": "run the tests that need a GPU",
    "compare": "compare NumPy with CuPy, operation by operation",
    "steps": "time training steps, their kernels, and PyTorch's steps",
    "train": "train the recipe cifar10",
}
PRECISIONS = ("bfloat16", "tf32", "float32", "float16")


def main(arguments=None):
    options = parse(arguments)
    folder = expanded(options.out)
    try:
        options.device = "cpu" if options.dry_run else as_device("cuda")
        folder.mkdir(parents=True, exist_ok=True)
    except (ValueError, OSError) as error:
        refuse(error)
    with current(options.device):
        report = carry_out(options, folder)
    sys.exit(1 if any(part.get("problem") for part in report["parts"].values()) else 0)


def parse(arguments):
    parser = argparse.ArgumentParser("python -m tinyvit.bench.gpu_report", description=(
        "Run the GPU tests, compare NumPy with CuPy, time training steps against PyTorch, train the recipe cifar10, "
        "and write gpu-report.json and gpu-report.txt."
    ))  # fmt: skip
    parser.error = refuse
    for part, what in PARTS.items():
        parser.add_argument(f"--{part}", action=argparse.BooleanOptionalAction, help=what)
    parser.add_argument("--quick", action="store_true", help=(
        "about two minutes: no comparison, the tests with few examples, one precision, one epoch"
    ))  # fmt: skip
    parser.add_argument("--dry-run", action="store_true", help="the same code on the CPU, with little work")
    parser.add_argument("--out", default="gpu-report", help="folder for the report (gpu-report)")
    parser.add_argument("--precisions", nargs="+", choices=PRECISIONS, help=(
        f"of the steps that are timed; the first is that of the training ({' '.join(PRECISIONS[:3])})"
    ))  # fmt: skip
    parser.add_argument("--minutes", type=float, help=(
        "for everything; the training takes what the other parts leave (9.5; with --quick 2)"
    ))  # fmt: skip
    parser.add_argument("--data-dir", help="folder or archive with CIFAR-10; by default where tinyvit keeps it")
    options = parser.parse_args(arguments)
    for name in PARTS:
        if getattr(options, name) is None:
            setattr(options, name, not (options.quick and name == "compare"))
    options.precisions = options.precisions or PRECISIONS[: 1 if options.quick else 3]
    if options.dry_run:
        options.precisions = ("float32",)
    options.minutes = (2.0 if options.quick else 9.5) if options.minutes is None else options.minutes
    if not options.minutes > 0:
        refuse(f"--minutes must be positive, got {options.minutes}")
    return options


def refuse(message):
    """End as every command does: one line, exit status 2."""
    print(f"gpu_report: error: {message}", file=sys.stderr)
    sys.exit(2)


def carry_out(options, folder):
    """Run the parts and write the report; returns it."""
    started = time.perf_counter()
    facts = machine.describe() | ({} if options.dry_run else gpu(options.device))
    report, lines = {"options": vars(options), "machine": facts, "parts": {}}, []

    def show(*more):
        lines.extend(more)
        print(*more, sep="\n", flush=True)
        write(folder / "gpu-report.txt", ("\n".join(lines) + "\n").encode())
        write(folder / "gpu-report.json", (json.dumps(report, indent=1) + "\n").encode())

    def left():
        return 60 * options.minutes - (time.perf_counter() - started)

    run = {
        "tests": (lambda: tests(options, left() / 3), lambda result: result["tail"]),
        "compare": (lambda: comparison.run(options), comparison.lines),
        "steps": (lambda: times.run(options), times.lines),
        "train": (lambda: recipe.run(options, left()), recipe.lines),
    }
    show("a dry run on the CPU, whose figures mean nothing" if options.dry_run else "tinyvit on a GPU",
         *(f"  {name}: {fact}" for name, fact in facts.items() if fact))  # fmt: skip
    for part in (part for part in PARTS if getattr(options, part)):
        begun, (measure, text) = time.perf_counter(), run[part]
        try:
            result = measure()
            shown = text(result)
        except Exception as error:  # the other parts have to be reported all the same
            result, shown = {"problem": " ".join(f"{type(error).__name__}: {error}".split())}, []
        seconds = time.perf_counter() - begun
        report["parts"][part] = {**result, "seconds": seconds}
        problem = [f"problem: {result['problem']}"] if result.get("problem") else []
        show("", f"{part}, {seconds:.0f} s", *(f"  {line}" for line in [*shown, *problem]))
    return report


def tests(options, seconds):
    """The tests that need a GPU, run by pytest in its own process: {"tail": its last lines}."""
    if not (ROOT / TESTS).is_dir():
        return {"tail": [], "problem": f"there is no {ROOT / TESTS}; run this from a checkout of the repository"}
    which = ["-m", "cuda", f"{TESTS}/test_elementwise.py"] if options.dry_run else ["-m", "gpu", TESTS]
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--no-header", "-p", "no:cacheprovider", *which], cwd=ROOT,
        env=os.environ | ({"HYPOTHESIS_PROFILE": "few"} if options.quick else {}), text=True, timeout=max(seconds, 30),
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    problem = {"problem": f"pytest ended with status {ended.returncode}"} if ended.returncode else {}
    return {"tail": ended.stdout.splitlines()[-10 if problem else -1 :]} | problem


if __name__ == "__main__":
    main()
