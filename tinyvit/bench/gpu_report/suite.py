"""The tests that need a GPU, run by pytest in its own process."""

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import tinyvit

ROOT = Path(tinyvit.__file__).parents[1]
TESTS = "tests/cuda"  # the rest of the suite needs packages that a machine with a GPU may do without
DRY = f"{TESTS}/test_elementwise.py"  # what a dry run tries, emulated
DOTS = re.compile(r"[.FEsxX]+(?: +\[ *\d+%\])?")  # a line of pytest's progress
COUNT = re.compile(r"(\d+) (passed|failed|errors?|skipped)")


def run(settings, seconds):
    """{"passed": …, "failed": …, "tail": the last lines}, and "problem" unless all passed."""
    if not (ROOT / TESTS).is_dir():
        return {"problem": f"the tests are not at {ROOT / 'tests'}; run this from a checkout of the repository"}
    if find_spec("pytest") is None or find_spec("hypothesis") is None:
        return {"problem": "pytest or hypothesis is not installed; pip install pytest hypothesis"}
    which = ["-m", "cuda", DRY] if settings.dry_run else ["-m", "gpu", TESTS]
    command = [sys.executable, "-m", "pytest", "-q", "--no-header", "-p", "no:cacheprovider", *which]
    try:
        where = {"cwd": ROOT, "env": environment(settings)}
        ended = subprocess.run(command, **where, capture_output=True, text=True, timeout=max(seconds, 30))
    except subprocess.TimeoutExpired as error:
        lines = (error.stdout or b"").decode(errors="replace").splitlines()
        return so_far(lines) | {"problem": f"the tests took longer than {seconds:.0f} s", "tail": lines[-5:]}
    return outcome(ended.returncode, (ended.stderr + ended.stdout).splitlines())  # pytest's summary is stdout's end


def environment(settings):
    """The environment variables of this process, with the device as the only visible GPU, and few examples if quick."""
    variables = os.environ | ({"HYPOTHESIS_PROFILE": "few"} if settings.quick else {})
    if settings.device == "cpu":
        return variables
    number = int(settings.device.partition(":")[2])
    seen = os.environ.get("CUDA_VISIBLE_DEVICES")
    return variables | {"CUDA_VISIBLE_DEVICES": seen.split(",")[number] if seen else str(number)}


def so_far(lines):
    """Counts by pytest's dots, for a run that was cut off before pytest could count."""
    dots = "".join(line.partition("[")[0] for line in lines if DOTS.fullmatch(line))
    return {"passed": dots.count("."), "failed": dots.count("F") + dots.count("E")}


def outcome(status, lines):
    """The numbers in pytest's last lines."""
    counts = {what.rstrip("s"): int(count) for count, what in COUNT.findall(lines[-1] if lines else "")}
    failed = counts.get("failed", 0) + counts.get("error", 0)
    result = {"passed": counts.get("passed", 0), "failed": failed, "tail": [line for line in lines[-12:] if line]}
    if status or not result["passed"]:
        result["problem"] = f"pytest ended with status {status}, {failed} tests failed"
    return result
