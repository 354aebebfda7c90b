"""The GPU report on a device, with little work, in every precision."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pretend_cupy
import pytest

from tinyvit import functional as F
from tinyvit.bench.gpu_report import comparison, expected, profile, recipe, report
from tinyvit.training import preset

PRECISIONS = ("tf32", "bfloat16", "float32")


def test_every_part_of_the_report_runs_on_a_device(cupy, tmp_path, monkeypatch):
    monkeypatch.setattr(recipe, "DIGITS", 1)
    monkeypatch.setattr(recipe, "TRIAL", 2)
    monkeypatch.setattr(recipe, "WARM", 1)
    monkeypatch.setattr(recipe, "preset", lambda name: replace(preset(name), images=200))
    monkeypatch.setattr(comparison, "STEPS", 2)
    monkeypatch.setattr(comparison, "STEP_IMAGES", 8)
    settings = report.Settings(
        device="cuda:0", dry_run=True, parts=("compare", "steps", "train"), precisions=PRECISIONS, batch_size=4,
        minutes=60, train_precision="bfloat16",
    )  # fmt: skip
    report.carry_out(settings, tmp_path)
    found = json.loads((tmp_path / "gpu-report.json").read_text())
    assert found["card"]["card"] and found["card"]["memory_bytes"] > 0
    compare, steps, train = (found["parts"][part] for part in settings.parts)
    assert not [part["problem"] for part in (compare, steps, train) if "problem" in part]
    assert {row["precision"] for row in compare["operations"]} >= {"float32", "bfloat16"}
    assert all(row["ok"] for rows in ("operations", "models", "twice") for row in compare[rows])
    for row in steps["steps"]:
        assert row["seconds"].keys() == {"tinyvit", "graph"} and len(set(row["losses"].values())) == 1
        assert row["bytes"] > 0 and row["of_best_rate"] > 0 and row["of_copy_bandwidth"] > 0
        launches = {kernel["name"]: kernel["launches"] for kernel in row["kernels"]}
        assert any(name.startswith("product 4×64×10, ") for name in launches) and launches["layernorm_forward"] > 0
    assert train["precision"] == "bfloat16" and 0 < train["test_accuracy"] <= 1 and train["skipped_steps"] == 0


LITTLE = report.Settings("cuda:0", True, (), (), batch_size=4, minutes=1, train_precision="float32")


def test_the_queue_is_emptied_before_it_is_full_and_the_card_is_kept_busy(cupy, monkeypatch):
    monkeypatch.setattr(profile, "PENDING", 5)
    x, order = cupy.zeros(64, "float32"), []
    wait = profile.synchronize
    monkeypatch.setattr(profile, "synchronize", lambda device: (order.append("wait"), wait(device)))
    keep_busy = profile.Clock.keep_busy
    monkeypatch.setattr(profile.Clock, "keep_busy", lambda clock: (order.append("busy"), keep_busy(clock)))

    def step():
        for _ in range(12):
            order.append("launch")
            F.relu(x)

    found = profile.of_a_step(step, LITTLE)
    # The first launch of five comes before what makes it wait, as `order` sees the call and not the kernel.
    assert "".join(word[0] for word in order) == "lwb" + "lllll" + "wb" + "lllll" + "wb" + "l" + "w"
    (row,) = found["kernels"]  # the products that keep the card busy aren't the step's
    assert (row["name"], row["launches"], row["bytes"]) == ("relu_forward", 12, 12 * 2 * x.nbytes)


@pytest.mark.cuda
@pytest.mark.parametrize(("done", "late"), [(False, 0), (True, 3)])
def test_a_card_that_had_nothing_left_to_do_is_reported(done, late):
    with pytest.MonkeyPatch.context() as patch:
        for name, module in pretend_cupy.MODULES.items():
            patch.setitem(sys.modules, name, module)
        patch.setattr(pretend_cupy.Event, "done", done)
        patch.setattr(profile, "PENDING", 5)
        x = pretend_cupy.cupy.zeros(64, "float32")
        assert profile.of_a_step(lambda: [F.relu(x) for _ in range(12)], LITTLE)["late"] == late


def test_what_a_step_launches_is_recorded_with_its_blocks_and_its_arrays(cupy):
    x, weight, launches = cupy.zeros((6, 5), "float32"), cupy.zeros((4, 5), "float32"), []
    with expected.recording(launches):
        y, _ = F.linear(x, weight)
        F.relu(y)
    F.relu(y)
    product, relu = launches
    assert (product.name, [array.shape for array in product.arrays]) == ("product", [(6, 5), (5, 4), (6, 4)])
    assert (relu.name, relu.source.file, relu.threads > 0, relu.blocks) == ("relu_forward", "elementwise.cu", True, 1)
    assert [row["launches"] for row in expected.table(launches, compile=False)["kernels"]] == [1, 1]


@pytest.mark.cuda
def test_the_compiler_says_what_a_kernel_needs(real):
    text = """extern "C" __global__ void f(float *x) {
        __shared__ float y[64]; y[threadIdx.x] = x[threadIdx.x]; __syncthreads(); x[threadIdx.x] = y[63 - threadIdx.x];
    }
    extern "C" __global__ void g(float *x) {
        int unused; float y[999]; for (int i = 0; i < 999; i++) y[i] = x[i]; x[0] = y[int(x[1])];
    }"""
    found = expected.compiled(text)
    assert set(found) == {"f", "g"} and 0 < found["f"]["registers"] < 32
    assert found["f"]["shared"] == 256 and found["f"]["spilled"] == found["g"]["shared"] == 0
    assert 8 <= found["f"]["instructions"] <= 30


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
from tinyvit.bench.gpu_report import recipe, report
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
settings = report.Settings(device="cuda:0", dry_run=False, parts=("train",), precisions=("bfloat16",), batch_size=4,
                           minutes=float(sys.argv[2]), train_precision="bfloat16", data_dir=str(folder / "data"))
found = report.carry_out(settings, folder, show=print)
sys.exit(found["parts"]["train"].get("problem"))
"""


def alone(folder, minutes):
    """The recipe cifar10, trained on a few images in a process that has only NumPy and the stand-in for CuPy."""
    paths = os.pathsep.join(map(str, (Path(__file__).parents[1], Path(__file__).parents[2])))
    command = [sys.executable, "-c", ALONE, str(folder), str(minutes)]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": paths})


@pytest.mark.cuda
@pytest.mark.full
def test_the_recipe_is_trained_in_the_time_there_is_with_nothing_but_numpy_and_cupy(tmp_path):
    ended = alone(tmp_path, 0.4)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    train = json.loads((tmp_path / "gpu-report.json").read_text())["parts"]["train"]
    assert 0 < train["epochs"] < train["epochs_of_the_recipe"] == 300
    assert len(train["history"]) >= 1 and train["seconds"] < 3 * 60
