"""The report's own code, on the CPU; on a pretended GPU see tests/cuda/test_gpu_report.py."""

import json
import subprocess
import sys

import numpy as np
import pytest

from tinyvit.bench.gpu_report import __main__ as command
from tinyvit.bench.gpu_report import comparison, recipe, times

pytestmark = pytest.mark.end_to_end


def dry(tmp_path, *options):
    """The report of a dry run without the tests, and its exit status."""
    with pytest.raises(SystemExit) as ended:
        command.main(["--dry-run", "--no-tests", "--out", str(tmp_path), *options])
    return json.loads((tmp_path / "gpu-report.json").read_text()), ended.value.code


def test_a_dry_run_walks_every_part_and_leaves_a_json_and_a_table(tmp_path, capsys):
    found, status = dry(tmp_path)
    assert status == 0 and list(found["parts"]) == ["compare", "steps", "train"]
    parts = found["parts"]
    assert parts["compare"]["operations"] and all(row["ok"] for row in parts["compare"]["operations"])
    (step,) = parts["steps"]["steps"]
    assert step["seconds"]["tinyvit"] > 0
    assert len(parts["train"]["history"]) == recipe.DRY_RUN_EPOCHS
    text = (tmp_path / "gpu-report.txt").read_text()
    assert text.startswith("a dry run on the CPU, whose figures mean nothing") and text == capsys.readouterr().out
    assert "processor: " in text and max(map(len, text.splitlines())) <= 120


def test_a_quick_report_has_little_work_unless_more_is_asked_for():
    quick, usual = command.parse(["--quick"]), command.parse([])
    assert [part for part in command.PARTS if getattr(quick, part)] == ["tests", "steps", "train"]
    assert (quick.precisions, quick.minutes) == (None, 2.0)
    assert all(getattr(usual, part) for part in command.PARTS) and usual.minutes == 9.5
    assert command.precisions_of("cpu") == ["float32"]
    more = command.parse(["--quick", "--compare", "--no-train", "--precisions", "tf32", "--minutes", "3"])
    assert more.compare and not more.train and (more.precisions, more.minutes) == (["tf32"], 3.0)


def test_a_part_that_fails_is_reported_and_the_others_go_on(tmp_path, monkeypatch, capsys):
    def fails(options, seconds):
        raise MemoryError("out of\nmemory")

    monkeypatch.setattr(comparison, "run", fails)
    found, status = dry(tmp_path, "--no-steps", "--quick", "--compare")
    assert status == 1 and found["parts"]["compare"]["problem"] == "MemoryError: out of memory"
    assert "problem: MemoryError: out of memory" in capsys.readouterr().out
    train = found["parts"]["train"]
    assert train["epochs"] == len(train["history"]) == 1 and "problem" not in train


def test_too_little_time_for_an_epoch_is_reported(tmp_path):
    found, status = dry(tmp_path, "--no-compare", "--no-steps", "--minutes", "0.0001")
    assert status == 1 and "longer than the" in found["parts"]["train"]["problem"]


def test_an_error_beyond_its_bound_is_a_problem_and_a_nan_is_within_none(monkeypatch):
    monkeypatch.setitem(comparison.BOUNDS, "float32", -1.0)
    options = command.parse(["--dry-run"])
    options.device = "cpu"
    result, _ = comparison.run(options, 60)
    assert result["problem"].startswith("not as it should be: patchify, unpatchify, tubelets")
    monkeypatch.setattr(comparison, "distance", lambda a, b: float("nan"))
    assert not any(row["ok"] for row in comparison.operations("cpu", "float64"))


@pytest.mark.parametrize(("status", "shown"), [(0, ["12 passed"]), (1, ["E no", "1 failed"])])
def test_the_tests_are_reported_by_their_last_lines(monkeypatch, status, shown):
    ended = subprocess.CompletedProcess([], status, "E no\n" + ("1 failed" if status else "12 passed"))
    monkeypatch.setattr(command.subprocess, "run", lambda *args, **options: ended)
    found, lines = command.run_tests(command.parse(["--dry-run"]), 60)
    assert lines == shown and ("problem" in found) == bool(status)


def test_all_gpu_tests_are_where_the_report_looks_for_them():
    tests, mark = command.ROOT / "tests", "mark." + "gpu"
    asking = {path for path in tests.rglob("*.py") if mark in path.read_text(encoding="utf-8")}
    assert asking and all(path.is_relative_to(command.ROOT / command.TESTS) for path in asking)


def test_a_product_is_named_by_its_shape():
    a, b, out = np.ones((2, 3, 4, 5), "float16"), np.ones((2, 3, 5, 7), "float16"), np.ones((2, 3, 4, 7), "float32")
    assert times.launch_name("products", [a, b, out]) == "product 6 of 4×5×7, float16 → float32"
    assert times.launch_name("product", [a[0, 0], b[0, 0], out[0, 0]]) == "product 4×5×7, float16 → float32"
    assert times.launch_name("gelu_forward", [a]) == "gelu_forward"


@pytest.mark.parametrize(("options", "message"), [
    ([], "device 'cuda' can't be used: "),
    (["--minutes", "nan"], "--minutes must be positive, got nan"),
    (["--precisions", "float8"], "argument --precisions: invalid choice: 'float8'"),
    (["--dry-run", "--out", __file__], "File exists"),
])  # fmt: skip
def test_bad_input_is_one_line_and_status_2(options, message):
    ended = subprocess.run(
        [sys.executable, "-m", "tinyvit.bench.gpu_report", *options], capture_output=True, text=True
    )  # fmt: skip
    assert ended.returncode == 2 and ended.stdout == ""
    (line,) = ended.stderr.splitlines()
    assert line.startswith("gpu_report: error: ") and message in line
