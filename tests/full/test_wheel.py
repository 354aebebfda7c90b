"""A built wheel works without the repository."""

import json
import subprocess
import sys
import venv
from pathlib import Path

import pytest

pytestmark = pytest.mark.full
REPOSITORY = Path(__file__).parents[2]


def run(*command, cwd):
    return subprocess.run([str(part) for part in command], cwd=cwd, check=True, text=True, capture_output=True).stdout


def test_a_built_wheel_in_a_clean_environment_trains_the_digits(tmp_path):
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", tmp_path, REPOSITORY, cwd=tmp_path)
    (wheel,) = tmp_path.glob("tinyvit-*.whl")
    venv.create(tmp_path / "venv", with_pip=True)
    binaries = tmp_path / "venv" / ("Scripts" if sys.platform == "win32" else "bin")
    run(binaries / "python", "-m", "pip", "install", "--quiet", wheel, cwd=tmp_path)
    run(binaries / "tinyvit", "train", "digits", "--out", "run", cwd=tmp_path)
    assert json.loads((tmp_path / "run/summary.json").read_text())["test_accuracy"] >= 0.97
    evaluated = json.loads(run(binaries / "tinyvit", "evaluate", "run", "--json", cwd=tmp_path))
    assert evaluated["test_accuracy"] >= 0.97
    assert "jupyter lab lessons/00_tour.ipynb" in run(binaries / "tinyvit", "notebooks", "lessons", cwd=tmp_path)
    copied = {path.relative_to(tmp_path / "lessons") for path in (tmp_path / "lessons").rglob("*") if path.is_file()}
    notebooks = REPOSITORY / "notebooks"
    assert {path.relative_to(notebooks) for path in notebooks.glob("*.ipynb")} <= copied
    assert Path("checkpoint/model.safetensors") in copied and Path("results/bench.txt") in copied
    # The tour, as a script, with nothing but the wheel and the copied folder.
    run(binaries / "python", "-W", "error", "00_tour.py", cwd=tmp_path / "lessons")
    run(binaries / "tinyvit", "inspect", "run", "--html", "explorer.html", cwd=tmp_path)
    assert "Content-Security-Policy" in (tmp_path / "explorer.html").read_text(encoding="utf-8")
    predict = binaries / "tinyvit", "predict", "cifar10-cpu", notebooks / "figures" / "augmentation.png"
    assert run(*predict, cwd=tmp_path) == run(*predict, cwd=notebooks / "models")
    where = run(binaries / "python", "-c", "import tinyvit; print(tinyvit.__file__)", cwd=tmp_path)
    assert str(tmp_path) in where
