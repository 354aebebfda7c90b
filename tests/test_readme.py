"""The README and the guide are right: their code runs, figures are those of the logs, links lead somewhere."""

import inspect
import json
import re
from dataclasses import replace
from pathlib import Path
from statistics import mean

import pytest

import tinyvit
from tinyvit import functional as F
from tinyvit.training import preset
from tinyvit.training.run_folder import RunFolder, stored_models

ROOT = Path(__file__).parents[1]
RESULTS, GUIDE = ROOT / "notebooks" / "results", ROOT / "notebooks" / "guide"
PAGES = {page.name: page.read_text() for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *GUIDE.glob("*.md"))}
README = PAGES["README.md"]


def fences(page, language):
    """The code blocks of a page in one language."""
    found = re.findall(r"^```(\w+)\n(.*?)^```", PAGES[page], re.MULTILINE | re.DOTALL)
    return [text for name, text in found if name == language]


def test_the_first_fence_of_the_readme_is_two_commands():
    assert README.index("```bash") == README.index("```")
    assert len(fences("README.md", "bash")[0].strip().splitlines()) == 2


def test_the_readme_fits_on_a_screen_and_a_half():
    assert len(README.splitlines()) <= 90


def test_the_code_that_is_shown_is_the_code_that_runs():
    (shown,) = fences("README.md", "python")
    for op in (F.softmax, F.softmax_backward):
        without_docstring = re.sub(r'    """.*?"""\n', "", inspect.getsource(op), flags=re.DOTALL)
        assert without_docstring in shown


@pytest.mark.parametrize("fence", fences("correctness.md", "python"))
def test_the_checks_find_the_mistakes_that_the_guide_shows(capsys, fence):
    exec(fence, {})
    printed = capsys.readouterr().out
    indented = "".join(f"    {line}\n" for line in printed.splitlines())
    assert indented in PAGES["correctness.md"]


def test_the_examples_in_python_run_with_the_shapes_in_their_comments(tmp_path, monkeypatch):
    names = {}
    exec(fences("python.md", "python")[0], names)
    assert names["model"].blocks[0].attn.qkv.weight.grad.shape == (576, 192)
    assert names["cache"].blocks[3].attn.heads.probs.shape == (8, 12, 65, 65)
    assert names["dimages"].shape == names["images"].shape
    assert 0 < float(names["result"].loss) < 10
    monkeypatch.chdir(tmp_path)
    for fence in fences("python.md", "python")[1:]:
        assert len(fence.splitlines()) <= 10
        exec(fence, names)
    model, maps = names["model"], names["maps"]
    assert model.num_parameters(trainable_only=True) == 963 + sum(p.size for p in model.blocks[8].parameters())
    assert names["probabilities"].shape == (8, 3) and maps.shape == (9, 8, 12, 8, 8)
    assert tinyvit.load("runs/mine").classes == names["animals"] and Path("maps.png").is_file()


LINKS = [(page, link) for page, text in PAGES.items() for link in re.findall(r"\]\(([^)#]+)\)", text)]


@pytest.mark.parametrize("page, link", LINKS)
def test_links_between_pages_lead_somewhere(page, link):
    folder = GUIDE if (GUIDE / page).exists() else ROOT
    assert link.startswith("https://") or (folder / link).exists()


def accuracies(log):
    """The test accuracies at the end of the trainings in a log, in percent."""
    return [float(x) for x in re.findall(r"^  test accuracy +([\d.]+) %$", (RESULTS / log).read_text(), re.MULTILINE)]


def test_the_quoted_accuracies_are_those_of_the_logs():
    for name, seeds in {"digits": 5, "cifar10-cpu": 3}.items():
        found = accuracies(f"{name}.log")
        spread = f"{mean(found):.2f} % (mean of seeds 0 to {seeds - 1}, {min(found):.2f} to {max(found):.2f})"
        assert len(found) == seeds and re.search(rf"`tinyvit train {name}` .* \| {re.escape(spread)} \|", README)
    for name, epochs in {
        "cpu-1-epoch": "1 epoch", "cpu-long": "92 epochs, with numba", "resnet": "19 epochs, with numba",
        "hybrid": "16 epochs, with numba", "coatnet": "24 epochs, with numba", "swin": "26 epochs, with numba",
    }.items():  # fmt: skip
        (accuracy,) = accuracies(f"cifar10-{name}.log")
        assert f"{epochs} | {accuracy:.2f} % |" in README


def test_the_quoted_transfer_results_are_the_measured_ones():
    measured = json.loads((RESULTS / "transfer.json").read_text())
    means = {(row["way"], row["side"]): 100 * mean(row["accuracies"]) for row in measured["rows"]}
    for way in ("from scratch", "probed", "fine-tuned"):
        assert f"| {way} | {means[way, 32]:.1f} % | {means[way, 48]:.1f} % |" in PAGES["transfer.md"]
    assert f"{100 * measured['pre-training']:.1f} %" in PAGES["transfer.md"]


def test_the_guide_has_a_row_for_each_model_that_comes_with_tinyvit():
    rows = dict(re.findall(r"^\| `([\w-]+)` \|(.*)$", PAGES["weights.md"], re.MULTILINE))
    assert rows.keys() == stored_models().keys()
    for name, folder in stored_models().items():
        summary = json.loads((folder / "summary.json").read_text())
        parameters, accuracy = f"{summary['parameters']:,}", f"{100 * summary['test_accuracy']:.2f}"
        assert re.search(rf"\| {parameters} \|.*\| {accuracy} % \|", rows[name])


def test_the_film_the_tour_and_the_guide_show_the_model_of_the_first_command():
    stored = RunFolder(stored_models()["digits"]).read_config()
    assert stored == replace(preset("digits"), threads=1, device="cpu", precision="float32")
    assert f"| `tinyvit train digits` | {tinyvit.load('digits').num_parameters():,} parameters" in README
    for name in ("00_tour.py", "figures/explorer.py", "figures/overview.py", "guide/inspection.md"):
        assert re.search(r'load\("digits"|"inspect", "digits"|inspect digits', (ROOT / "notebooks" / name).read_text())


def test_the_quoted_errors_are_those_of_the_log():
    log = (RESULTS / "gradcheck.log").read_text().splitlines()
    quoted = [line.strip() for line in README.splitlines() if line.endswith("right")]
    assert len(quoted) == 4 and set(quoted) <= set(log)


def test_the_quoted_memory_is_that_of_the_log():
    row = next(line for line in (RESULTS / "long-sequences.log").read_text().splitlines() if line.startswith(" 4,097"))
    at_once, tiled, recomputed, _ = re.findall(r"([\d,]+ MB) \(", row)
    quoted = f"takes {at_once} with all scores at once, {tiled} in tiles, and {recomputed} with both"
    assert quoted in " ".join(PAGES["training.md"].split())


@pytest.mark.parametrize("file, count", [("bench.json", 4), ("bench-convolutions.json", 2), ("bench-windows.json", 2)])
def test_the_quoted_ratios_are_those_of_the_benchmark(file, count):
    cases = json.loads((RESULTS / file).read_text())["cases"]
    training = [case for case in cases if case["kind"] == "train"]
    assert len(training) == count
    ratios = []
    for case in training:
        by_name = {result["name"]: result for result in case["results"]}
        numpy, fast, torch = (by_name[name] for name in ("numpy", "fast", "torch"))
        ratios.append([f"{one['ratios_of_medians']['torch']:.2f}" for one in (numpy, fast)])
        memory = ", ".join(f"{one['peak_bytes'] / 1e6:,.0f}" for one in (numpy, fast, torch))
        (row,) = (line for line in PAGES["speed.md"].splitlines() if re.match(rf"\| `{case['case']}`[: ]", line))
        assert row.endswith(" | ".join([*ratios[-1], f"{100 * fast['of_floor']:.0f} %", f"{memory} MB |"]))
    assert all(1.2 <= round(float(fast) / float(numpy), 1) <= 1.8 for numpy, fast in ratios)  # says `display.FASTER`
    readme = " ".join(README.split())
    if file == "bench.json":
        assert all(f"{min(kind)} to {max(kind)} times" in readme for kind in zip(*ratios))
    elif file == "bench-convolutions.json":
        assert "of a ResNet at {} and {} times".format(*ratios[0]) in readme
