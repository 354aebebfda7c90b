"""The report's own code, on the CPU; on a pretended GPU see tests/cuda/test_gpu_report.py."""

import json
import math
import subprocess
import sys

import numpy as np
import pytest

from tinyvit.bench.gpu_report import __main__ as command
from tinyvit.bench.gpu_report import comparison, expected, page, profile, recipe, report, suite, times
from tinyvit.kernels.cuda import fused_attention, linear

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
    assert all(row["ok"] for rows in ("operations", "models", "twice") for row in parts["compare"][rows])
    assert parts["compare"]["operations"] and parts["compare"]["models"] and parts["compare"]["twice"]
    (step,) = parts["steps"]["steps"]
    assert step["images_per_second"]["tinyvit"] == pytest.approx(8 / step["seconds"]["tinyvit"])
    assert 0 < step["of_best_rate"] < 10 and parts["steps"]["ceilings"]["bytes_per_second"] > 0
    assert 0 < parts["train"]["test_accuracy"] <= 1 and len(parts["train"]["history"]) == recipe.DIGITS
    text = (tmp_path / "gpu-report.txt").read_text()
    assert text.startswith("a dry run on the CPU, whose figures mean nothing")
    shown = capsys.readouterr().out
    assert all(line in shown for line in text.splitlines())
    assert max(map(len, text.splitlines())) <= 120


@pytest.mark.parametrize("part", report.PARTS)
def test_every_part_can_be_left_out(part):
    options = command.parse([f"--no-{part}"])
    assert not getattr(options, part)
    assert all(getattr(options, other) for other in report.PARTS if other != part)


def test_a_quick_report_has_little_work_unless_more_is_asked_for():
    quick, usual = command.parse(["--quick"]), command.parse([])
    assert [part for part in report.PARTS if getattr(quick, part)] == ["tests", "steps", "train"]
    assert (quick.precisions, quick.minutes) == (("bfloat16",), 2.0) and quick.compile
    assert all(getattr(usual, part) for part in report.PARTS)
    assert (usual.precisions, usual.minutes) == (("tf32", "bfloat16", "float32"), 9.5)
    more = command.parse(["--quick", "--compare", "--no-train", "--precisions", "tf32", "--minutes", "3"])
    assert more.compare and not more.train and (more.precisions, more.minutes) == (["tf32"], 3.0)


def test_a_quick_report_trains_one_epoch(tmp_path):
    found, status = dry(tmp_path, "--quick", "--no-steps")
    assert status == 0 and list(found["parts"]) == ["train"]
    train = found["parts"]["train"]
    assert train["epochs"] == len(train["history"]) == 1 < train["epochs_of_the_recipe"]


def test_steps_that_were_timed_are_kept_if_what_comes_after_them_fails(tmp_path, monkeypatch):
    kept, right = [], times.Contest.invite

    def invite(contest, name):
        if name == "compile":
            kept.append(json.loads((tmp_path / "gpu-report.json").read_text())["parts"]["steps"])
            raise MemoryError("out of memory")
        right(contest, name)

    monkeypatch.setattr(times.Contest, "invite", invite)
    found, status = dry(tmp_path, "--no-compare", "--no-train")
    (before,), after = kept, found["parts"]["steps"]
    assert status == 1 and before["problem"] == report.UNFINISHED and after["problem"] == "MemoryError: out of memory"
    assert before["steps"] == after["steps"] and after["steps"][0]["seconds"]["tinyvit"] > 0


def test_a_part_that_fails_is_reported_and_the_others_go_on(tmp_path, monkeypatch, capsys):
    def fails(settings):
        raise MemoryError("out of\nmemory")

    monkeypatch.setattr(comparison, "run", fails)
    found, status = dry(tmp_path, "--no-steps")
    assert status == 1
    assert found["parts"]["compare"]["problem"] == "MemoryError: out of memory"
    assert "problem" not in found["parts"]["train"]
    assert "problem: MemoryError: out of memory" in capsys.readouterr().out


def test_an_error_beyond_its_bound_is_reported_as_a_problem(tmp_path, monkeypatch):
    monkeypatch.setitem(comparison.BOUNDS, "float32", -1.0)
    found, status = dry(tmp_path, "--no-steps", "--no-train")
    assert status == 1
    assert found["parts"]["compare"]["problem"].startswith("not as it should be: patchify, unpatchify, tubelets")


def test_a_nan_anywhere_in_an_operations_results_is_found(monkeypatch):
    right = comparison.results

    def results(forward, backward, inputs):
        found = right(forward, backward, inputs)
        found[-1] = found[-1] * float("nan")
        return found

    monkeypatch.setattr(comparison, "results", results)
    rows = list(comparison.operations("cpu", "float32"))
    assert rows and not any(row["ok"] for row in rows)


def test_a_nan_anywhere_in_a_models_gradients_is_found(monkeypatch):
    right = comparison.logits_and_gradients

    def wrong(model, *args):
        found = right(model, *args)
        found["head.weight"] = found["head.weight"] * float("nan")
        return found

    monkeypatch.setattr(comparison, "logits_and_gradients", wrong)
    row = comparison.model_row("cpu", "float32", "digits")
    assert not row["ok"] and row["worst"] == "head.weight"


def test_nan_and_infinity_do_not_break_the_report(tmp_path, monkeypatch):
    wrong = {"operations": [comparison.row("gelu", "float32", float("nan"))], "twice": [],
             "models": [comparison.row("ViT", "float32", float("inf"), worst="x", logits=float("nan"))]}  # fmt: skip
    monkeypatch.setattr(comparison, "run", lambda settings: wrong)
    found, _ = dry(tmp_path, "--no-steps", "--no-train")
    assert [row["error"] for row in found["parts"]["compare"]["operations"]] == [None]
    assert "ViT: not a number, worst in x, logits not a number" in (tmp_path / "gpu-report.txt").read_text()


def test_what_was_trained_is_kept_after_each_evaluation(tmp_path, monkeypatch):
    right = recipe.epochs

    def epochs(trainer, begun):
        yield next(right(trainer, begun))
        raise KeyboardInterrupt

    monkeypatch.setattr(recipe, "epochs", epochs)
    with pytest.raises(KeyboardInterrupt):
        command.main(["--dry-run", "--no-tests", "--no-compare", "--no-steps", "--out", str(tmp_path)])
    train = json.loads((tmp_path / "gpu-report.json").read_text())["parts"]["train"]
    assert len(train["history"]) == 1 and train["problem"] == report.UNFINISHED


def test_a_nan_is_never_within_a_bound():
    assert not comparison.row("gelu", "float32", float("nan"))["ok"]
    assert not comparison.row("gelu", "tf32", float("nan"))["ok"]


def test_too_little_time_for_an_epoch_is_reported(tmp_path):
    found, status = dry(tmp_path, "--no-compare", "--no-steps", "--minutes", "0.0001")
    assert status == 1
    assert "longer than the" in found["parts"]["train"]["problem"]


def test_losses_that_differ_make_the_times_a_problem():
    assert times.disagreement({"tinyvit": 2.0, "torch": 2.1}, "float32").startswith("float32: not the same work")
    assert times.disagreement({"tinyvit": 2.0, "torch": 2.00001}, "float32") is None
    assert times.disagreement({"tinyvit": 2.0, "torch": float("nan")}, "float32")


@pytest.mark.parametrize(
    ("lines", "passed", "failed", "problem"),
    [
        (["12 passed, 3 deselected in 1.00s"], 12, 0, None),
        (["1 failed, 11 passed in 1.00s"], 11, 1, "pytest ended with status 1, 1 tests failed"),
        (["2 errors in 0.10s"], 0, 2, "pytest ended with status 1, 2 tests failed"),
        (["no tests ran in 0.01s"], 0, 0, "pytest ended with status 1, 0 tests failed"),
        ([], 0, 0, "pytest ended with status 1, 0 tests failed"),
    ],
)
def test_the_outcome_of_the_tests_is_read_from_the_last_line(lines, passed, failed, problem):
    found = suite.outcome(0 if problem is None else 1, lines)
    assert (found["passed"], found["failed"], found.get("problem")) == (passed, failed, problem)


def test_tests_that_take_too_long_are_counted_up_to_there():
    lines = [".........F.E [ 50%]", "..", "an error with ... dots", ""]
    assert suite.so_far(lines) == {"passed": 12, "failed": 2}


def test_a_product_is_named_by_its_shape_and_counts_its_operations():
    a, b, out = np.ones((2, 3, 4, 5), "float16"), np.ones((2, 3, 5, 7), "float16"), np.ones((2, 3, 4, 7), "float32")
    assert profile.described("products", [a, b, out]) == ("product 6 of 4×5×7, f16 → f32", 2 * 6 * 4 * 5 * 7)
    a, b, out = (x[0, 0] for x in (a, b, out))
    assert profile.described("product", [a, b, out]) == ("product 4×5×7, f16 → f32", 2 * 4 * 5 * 7)
    assert profile.described("gelu_forward", [a]) == ("gelu_forward", 0)


def test_all_gpu_tests_are_where_the_report_looks_for_them():
    tests, mark = suite.ROOT / "tests", "mark." + "gpu"
    asking = {path for path in tests.rglob("*.py") if mark in path.read_text(encoding="utf-8")}
    assert asking and all(path.is_relative_to(suite.ROOT / suite.TESTS) for path in asking)


def test_a_warning_after_the_outcome_of_the_tests_does_not_hide_it(monkeypatch):
    ended = subprocess.CompletedProcess([], 0, "370 passed in 100.00s\n", "a library that is unloaded says so\n")
    monkeypatch.setattr(suite.subprocess, "run", lambda *args, **options: ended)
    settings = report.Settings("cuda:0", False, ("tests",), ("float32",), 1024, 10, "float32")
    found = suite.run(settings, 60)
    assert found["passed"] == 370 and "problem" not in found and "a library that is unloaded says so" in found["tail"]


def test_a_part_that_ended_without_results_is_shown():
    assert page.part("train", {"seconds": 1.0, "problem": "no CIFAR-10"}).splitlines()[-1] == "  problem: no CIFAR-10"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--device", "cuda"], "device 'cuda' can't be used: "),
        (["--device", "gpu"], "unknown device 'gpu'"),
        (["--device", "cpu"], "the report is about a GPU"),
        (["--dry-run", "--device", "cuda"], "--dry-run computes on the CPU; leave out --device cuda"),
        (["--batch-size", "0"], "--batch-size must be at least 1, got 0"),
        (["--minutes", "nan"], "--minutes must be positive, got nan"),
        (["--precisions", "float8"], "argument --precisions: invalid choice: 'float8'"),
        (["--dry-run", "--out", __file__], "File exists"),
    ],
)
def test_bad_input_is_one_line_and_status_2(options, message):
    ended = subprocess.run(
        [sys.executable, "-m", "tinyvit.bench.gpu_report", *options], capture_output=True, text=True
    )  # fmt: skip
    assert ended.returncode == 2 and ended.stdout == ""
    (line,) = ended.stderr.splitlines()
    assert line.startswith("gpu_report: error: ") and message in line


def shapes(*arrays, dtype="bfloat16"):
    size = 4 if dtype == "float32" else 2
    return [expected.Shape(shape, dtype, size * math.prod(shape)) for shape in arrays]


def test_a_product_takes_what_its_bytes_or_its_operations_take():
    wide = expected.Launch("product", shapes((8192, 8192), (8192, 8192), (8192, 8192)))
    narrow = expected.Launch("product", shapes((65536, 48), (48, 192), (65536, 192)))
    card, found = expected.CARDS[0], expected.table([wide, narrow, narrow], compile=False)
    (first, second), sums = found["kernels"], found["sums"]
    assert first["name"] == "product 8192×8192×8192, bf16 → bf16" and first["bound_by"] == "products"
    assert first[f"{card.name}_at_peak"] == pytest.approx(2 * 8192**3 / 989e12)
    assert second["launches"] == 2 and second["bound_by"] == "memory"
    assert second[f"{card.name}_at_peak"] == pytest.approx(2 * 2 * (65536 * 240 + 48 * 192) / 4.8e12)
    assert second[f"{card.name}_expected"] > second[f"{card.name}_at_peak"] + 2 * expected.START
    assert sums["launches"] == 3 and sums["H100_at_peak"] > sums["H200_at_peak"]
    text = expected.text(found, "a title")
    assert text.startswith("a title\n") and "in all: 3 launches" in text
    assert max(map(len, text.splitlines())) <= 120


def test_attention_counts_its_scores():
    q = (2, 3, 64, 16)
    launch = expected.Launch("attention_forward", shapes(q, q, q, q), fused_attention.SOURCE,
                             {"T": "bfloat16", "HEAD": 16, "BIAS": 0}, 192, 6)  # fmt: skip
    cost = expected.cost(launch, 0)
    assert cost["exponentials"] == 2 * 3 * 64 * 64 and cost["operations"] == 4 * 16 * cost["exponentials"]
    assert cost["bytes"] == 4 * 2 * 2 * 3 * 64 * 16


def test_what_is_written_in_place_counts_twice():
    launch = expected.Launch("linear_add_bias", shapes((64, 16), (16,)), linear.SOURCE, {}, 128, 1)
    assert expected.cost(launch, 0, compile=False)["bytes"] == 2 * 2 * 64 * 16 + 2 * 16


def test_few_warps_make_instructions_slower():
    cost = {"bytes": 0, "operations": 0, "on_tensor_cores": 0, "exponentials": 0, "instructions": 10**9}
    times = [expected.seconds(cost, expected.CARDS[0], warps)[1] - expected.START for warps in (8, 16, 32)]
    assert times[0] == pytest.approx(2 * times[1]) and times[1] == times[2]


@pytest.mark.parametrize(
    ("registers", "threads", "shared", "count"),
    [(32, 256, 0, 8), (33, 256, 0, 6), (197, 224, 0, 1), (32, 32, 0, 32), (32, 256, 48 * 1024, 4)],
)
def test_blocks_of_an_sm_are_limited_by_what_runs_out_first(registers, threads, shared, count):
    assert expected.blocks_per_sm(registers, threads, shared) == count
