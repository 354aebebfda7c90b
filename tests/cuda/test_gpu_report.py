"""The GPU report on a device, with little work, in every precision."""

import json
from dataclasses import replace

from tinyvit import functional as F
from tinyvit.bench.gpu_report import __main__ as command
from tinyvit.bench.gpu_report import recipe, times
from tinyvit.training import preset


def test_every_part_of_the_report_runs_on_a_device(cupy, tmp_path, monkeypatch):
    monkeypatch.setattr(recipe, "DRY_RUN_EPOCHS", 1)
    monkeypatch.setattr(recipe, "TRIAL_STEPS", 2)
    monkeypatch.setattr(recipe, "WARM_UP_STEPS", 1)
    monkeypatch.setattr(recipe, "preset", lambda name: replace(preset(name), images=200))
    options = command.parse(["--dry-run", "--no-tests", "--minutes", "60"])
    options.device, options.precisions = "cuda:0", ("bfloat16", "tf32", "float32")
    command.run_parts(options, tmp_path)
    found = json.loads((tmp_path / "gpu-report.json").read_text())
    compare, steps, train = (found["parts"][part] for part in ("compare", "steps", "train"))
    assert not [part["problem"] for part in (compare, steps, train) if "problem" in part]
    assert {row["precision"] for row in compare["operations"]} >= {"float32", "bfloat16"}
    assert all(row["ok"] for row in compare["operations"])
    for row in steps["steps"]:
        assert {"tinyvit", "a CUDA graph"} <= row["seconds"].keys()
        assert row["losses"]["a CUDA graph"] == row["losses"]["tinyvit"]
        launches = {kernel["name"]: kernel["launches"] for kernel in row["kernels"]}
        assert any(name.startswith("product 8×48×10, ") for name in launches) and launches["layernorm_forward"] > 0
    assert train["precision"] == "bfloat16" and 0 < train["history"][-1]["test_accuracy"] <= 1


def test_each_kernel_of_a_step_is_counted_with_its_bytes(cupy):
    x = cupy.zeros(64, "float32")
    found = times.kernels_of(lambda: [F.gelu(x) for _ in range(12)], "cuda:0", side=64)
    (row,) = found  # the products that keep the card busy aren't the step's
    assert (row["name"], row["launches"], row["bytes"]) == ("gelu_forward", 12, 12 * 2 * x.nbytes)
