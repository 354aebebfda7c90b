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
from tinyvit.bench.worker import error_line
from tinyvit.files import expand_path, write
from tinyvit.nn.precision import fastest_precision, is_available

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
    options = parse(sys.argv[1:] if arguments is None else arguments)
    folder = expand_path(options.out)
    try:
        options.device = "cpu" if options.dry_run else as_device("cuda")
        options.precisions = options.precisions or precisions_of(options.device)[: 1 if options.quick else 3]
        folder.mkdir(parents=True, exist_ok=True)
    except (ValueError, OSError) as error:
        refuse(error)
    with current(options.device):
        report = run_parts(options, folder)
    sys.exit(any(part.get("problem") for part in report["parts"].values()))


def precisions_of(device):
    """The precisions that a device computes in, its fastest first."""
    return sorted((one for one in PRECISIONS if is_available(one, device)), key=fastest_precision(device).__ne__)


def parse(arguments):
    """The options, with what --quick makes of the others."""
    quick = "--quick" in arguments
    parser = argparse.ArgumentParser("python -m tinyvit.bench.gpu_report", allow_abbrev=False, description=(
        "Run the GPU tests, compare NumPy with CuPy, time training steps against PyTorch, train the recipe cifar10, "
        "and write gpu-report.json and gpu-report.txt."
    ))  # fmt: skip
    parser.error = refuse
    option = parser.add_argument
    for part, what in PARTS.items():
        option(f"--{part}", action=argparse.BooleanOptionalAction, default=not (quick and part == "compare"), help=what)
    option("--quick", action="store_true", help="two minutes: no comparison, few examples, one precision, one epoch")
    option("--dry-run", action="store_true", help="the same code on the CPU, with little work")
    option("--out", default="gpu-report", help="folder for the report (%(default)s)")
    option("--precisions", nargs="+", choices=PRECISIONS, help="of the timed steps, first the training's (the fastest)")
    option("--minutes", type=float, default=2.0 if quick else 9.5,
           help="for everything; the training takes what the other parts leave (%(default)s)")  # fmt: skip
    option("--data-dir", help="folder or archive with CIFAR-10; by default where tinyvit keeps it")
    options = parser.parse_args(arguments)
    if not options.minutes > 0:
        refuse(f"--minutes must be positive, got {options.minutes}")
    return options


def refuse(message):
    """End as every command does: one line, exit status 2."""
    print(f"gpu_report: error: {message}", file=sys.stderr)
    sys.exit(2)


def run_parts(options, folder):
    """Run the parts and write the report; returns it."""
    end = time.perf_counter() + 60 * options.minutes
    facts = machine.describe() | ({} if options.dry_run else gpu(options.device))
    report, lines = {"options": vars(options), "machine": facts, "parts": {}}, []

    def show(*more):
        lines.extend(more)
        print(*more, sep="\n", flush=True)
        write(folder / "gpu-report.txt", ("\n".join(lines) + "\n").encode())
        write(folder / "gpu-report.json", (json.dumps(report, indent=1) + "\n").encode())

    show("a dry run on the CPU, whose figures mean nothing" if options.dry_run else "tinyvit on a GPU",
         *(f"  {name}: {fact}" for name, fact in facts.items() if fact))  # fmt: skip
    runs = {"tests": run_tests, "compare": comparison.run, "steps": times.run, "train": recipe.run}
    for part in filter(vars(options).get, PARTS):
        begun = time.perf_counter()
        try:
            result, shown = runs[part](options, end - begun)
        except Exception as error:  # the other parts have to be reported all the same
            result, shown = {"problem": error_line(error, 1000)}, []
        seconds = time.perf_counter() - begun
        report["parts"][part] = {**result, "seconds": seconds}
        problem = [f"problem: {result['problem']}"] if result.get("problem") else []
        show("", f"{part}, {seconds:.0f} s", *(f"  {line}" for line in [*shown, *problem]))
    return report


def run_tests(options, seconds):
    """The tests that need a GPU, run by pytest in its own process for a third of the time: {} or {"problem": …}, and
    its last lines."""
    which = ["-m", "cuda", f"{TESTS}/test_cast.py"] if options.dry_run else ["-m", "gpu", TESTS]
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--no-header", "-p", "no:cacheprovider", *which], cwd=ROOT,
        env=os.environ | ({"HYPOTHESIS_PROFILE": "few"} if options.quick else {}), text=True,
        timeout=max(seconds / 3, 30), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    problem = {"problem": f"pytest ended with status {ended.returncode}"} if ended.returncode else {}
    return problem, ended.stdout.splitlines()[-10 if problem else -1 :]


if __name__ == "__main__":
    main()
