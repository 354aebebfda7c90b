"""The README's code does what it says."""

import inspect
import json
import re
from pathlib import Path
from statistics import mean

import pytest

from tinyvit import functional as F

README = (Path(__file__).parents[1] / "README.md").read_text()
FENCES = re.findall(r"^```(\w+)\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
PYTHON = [text for language, text in FENCES if language == "python"]


def test_the_first_fence_is_two_commands():
    language, text = FENCES[0]
    assert language == "bash" and len(text.strip().splitlines()) == 2


def test_the_code_that_is_shown_is_the_code_that_runs():
    shown = PYTHON[0]
    for op in (F.softmax, F.softmax_backward):
        without_docstring = re.sub(r'    """.*?"""\n', "", inspect.getsource(op), flags=re.DOTALL)
        assert without_docstring in shown


@pytest.mark.parametrize("fence", PYTHON[1:3])
def test_the_checks_find_the_mistakes_that_the_readme_shows(capsys, fence):
    exec(fence, {})
    printed = capsys.readouterr().out
    indented = "".join(f"    {line}\n" for line in printed.splitlines())
    assert indented in README


def test_the_models_example_runs_with_the_shapes_in_its_comments():
    names = {}
    exec(PYTHON[3], names)
    assert names["model"].blocks[0].attn.qkv.weight.grad.shape == (576, 192)
    assert names["cache"].blocks[3].attn.heads.probs.shape == (8, 12, 65, 65)
    assert names["dimages"].shape == names["images"].shape
    assert 0 < float(names["result"].loss) < 10


RESULTS = Path(__file__).parents[1] / "notebooks" / "results"


def accuracies(log):
    """The test accuracies at the end of the trainings in a log, in percent."""
    return [float(x) for x in re.findall(r"^  test accuracy +([\d.]+) %$", (RESULTS / log).read_text(), re.MULTILINE)]


def test_the_accuracies_that_are_quoted_are_those_of_the_logs():
    digits = accuracies("digits.log")
    assert len(digits) == 5
    assert f"{mean(digits):.2f} % (mean of seeds 0 to 4, {min(digits):.2f} to {max(digits):.2f})" in README
    for log, epochs in (("cifar10-cpu-1-epoch.log", "1 epoch"), ("cifar10-cpu.log", "11 epochs")):
        (accuracy,) = accuracies(log)
        assert f"{epochs} | {accuracy:.2f} % |" in README


def test_the_transfer_that_is_quoted_is_what_was_measured():
    measured = json.loads((RESULTS / "transfer.json").read_text())
    means = {(row["way"], row["side"]): 100 * mean(row["accuracies"]) for row in measured["rows"]}
    for way in ("from scratch", "probed", "fine-tuned"):
        assert f"| {way} | {means[way, 32]:.1f} % | {means[way, 48]:.1f} % |" in README
    assert f"{100 * measured['pre-training']:.1f} %" in README


def test_the_errors_that_are_quoted_are_those_of_the_log():
    log = (RESULTS / "gradcheck.log").read_text().splitlines()
    quoted = [line.strip() for line in README.splitlines() if line.endswith("right")]
    assert len(quoted) == 4 and set(quoted) <= set(log)


def test_the_memory_that_is_quoted_is_that_of_the_log():
    row = next(line for line in (RESULTS / "long-sequences.log").read_text().splitlines() if line.startswith(" 4,097"))
    at_once, tiled, recomputed, _ = re.findall(r"([\d,]+ MB) \(", row)
    assert f"takes {at_once} with all scores at once, {tiled} in tiles, and {recomputed} with both" in README


def test_the_ratios_that_are_quoted_are_those_of_the_benchmark():
    cases = json.loads((RESULTS / "bench.json").read_text())["cases"]
    training = [case for case in cases if case["kind"] == "train"]
    assert len(training) == 4
    for case in training:
        by_name = {result["name"]: result for result in case["results"]}
        numpy, fast, torch = (by_name[name] for name in ("numpy", "fast", "torch"))
        ratios = (f"{one['ratios_of_medians']['torch']:.2f}" for one in (numpy, fast))
        memory = ", ".join(f"{one['peak_bytes'] / 1e6:,.0f}" for one in (numpy, fast, torch))
        (row,) = (line for line in README.splitlines() if line.startswith(f"| `{case['case']}`:"))
        assert row.split(" | ")[1:] == [*ratios, f"{100 * fast['of_floor']:.0f} %", f"{memory} MB |"]
