"""The GPU report on a device, with little work, in every precision."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tinyvit import functional as F
from tinyvit.bench.gpu_report import __main__ as command
from tinyvit.bench.gpu_report import recipe, times
from tinyvit.training import preset


def test_every_part_of_the_report_runs_on_a_device(cupy, tmp_path, monkeypatch):
    monkeypatch.setattr(recipe, "DIGITS", 1)
    monkeypatch.setattr(recipe, "TRIAL", 2)
    monkeypatch.setattr(recipe, "WARM", 1)
    monkeypatch.setattr(recipe, "preset", lambda name: replace(preset(name), images=200))
    options = command.parse(["--dry-run", "--no-tests", "--minutes", "60"])
    options.device, options.precisions = "cuda:0", ("bfloat16", "tf32", "float32")
    command.carry_out(options, tmp_path)
    found = json.loads((tmp_path / "gpu-report.json").read_text())
    compare, steps, train = (found["parts"][part] for part in ("compare", "steps", "train"))
    assert not [part["problem"] for part in (compare, steps, train) if "problem" in part]
    assert {row["precision"] for row in compare["operations"]} >= {"float32", "bfloat16"}
    assert all(row["ok"] for row in compare["operations"])
    for row in steps["steps"]:
        assert {"tinyvit", "a CUDA graph"} <= row["seconds"].keys()
        assert row["losses"]["a CUDA graph"] == row["losses"]["tinyvit"]
        launches = {kernel["name"]: kernel["launches"] for kernel in row["kernels"]}
        assert any(name.startswith("product 8×64×10, ") for name in launches) and launches["layernorm_forward"] > 0
    assert train["precision"] == "bfloat16" and 0 < train["history"][-1]["test_accuracy"] <= 1


def test_each_kernel_of_a_step_is_counted_with_its_bytes(cupy):
    x = cupy.zeros(64, "float32")
    found = times.kernels_of(lambda: [F.gelu(x) for _ in range(12)], "cuda:0", side=64)
    (row,) = found  # the products that keep the card busy aren't the step's
    assert (row["name"], row["launches"], row["bytes"]) == ("gelu_forward", 12, 12 * 2 * x.nbytes)


ALONE = """
import sys
from dataclasses import replace
from importlib.metadata import distribution, packages_distributions

usual = {line.partition(">")[0] for line in distribution("tinyvit").requires if "extra" not in line} - {"numpy"}
assert {"scipy", "tqdm"} <= usual
for module, names in packages_distributions().items():
    if usual & set(names):
        sys.modules[module] = None  # from here on it can't be imported
import pretend_cupy
sys.modules.update(pretend_cupy.MODULES)

from pathlib import Path
from tinyvit.bench.gpu_report import __main__ as command, recipe
from tinyvit.data import cifar
from tinyvit.training import preset
from small_cifar import small, write_folder

folder = Path(sys.argv[1])
spec, contents = small(cifar.CIFAR10, images=40)
write_folder(spec, contents, folder / "data")
cifar.CIFARS["cifar10"] = spec
config = preset("cifar10")
tiny = replace(config.model, embed_dim=16, depth=1, num_heads=1)
recipe.preset = lambda name: replace(config, model=tiny, batch_size=32)
recipe.TRIAL, recipe.WARM = 2, 1
options = command.parse(["--no-tests", "--no-compare", "--no-steps", "--minutes", sys.argv[2], "--data-dir",
                         str(folder / "data")])
options.device = "cuda:0"
found = command.carry_out(options, folder)
sys.exit(found["parts"]["train"].get("problem"))
"""


@pytest.mark.cuda
@pytest.mark.full
def test_the_recipe_is_trained_in_the_time_there_is_with_nothing_but_numpy_and_cupy(tmp_path):
    paths = os.pathsep.join(map(str, (Path(__file__).parents[1], Path(__file__).parents[2])))
    command = [sys.executable, "-c", ALONE, str(tmp_path), "1"]
    ended = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": paths})
    assert ended.returncode == 0, ended.stdout + ended.stderr
    train = json.loads((tmp_path / "gpu-report.json").read_text())["parts"]["train"]
    assert 0 < train["epochs"] < train["epochs_of_the_recipe"] == 300
    assert len(train["history"]) >= 1 and train["seconds"] < 3 * 60
