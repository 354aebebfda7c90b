"""The script behind the figures of notebook 18, and what it has stored."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tinyvit.data import load

SCRIPT = Path(__file__).parents[1] / "notebooks" / "results" / "diffusion.py"


def test_the_stored_rows_are_ones_that_the_script_makes_each_once(script):
    rows = script.stored()
    keys = [tuple(row.get(name) for name in ("model", "method", "steps", "guidance")) for row in rows]
    assert len(set(keys)) == len(keys) and {row["model"] for row in rows} == set(script.MODELS)
    for row in rows:
        each, judged = script.JUDGED.get(row["model"], script.SWEPT)
        if "epochs" in row:
            assert row["epochs"] == script.MODELS[row["model"]].epochs
        else:
            assert (row["method"], row["steps"], row["guidance"]) in judged and row["images"] == 10 * each


def test_models_of_the_sweep_differ_in_their_patches_alone(script):
    small = [replace(config, model=replace(config.model, patch_size=1))
             for name, config in script.MODELS.items() if name.startswith("patch")]  # fmt: skip
    assert len(small) == 3 and small[0] == small[1] == small[2]


def test_real_digits_are_right_and_copies_are_found(script):
    judge, digits = script.Judge(), load("digits")
    found = judge(digits.test.images / 16, digits.test.labels)
    assert found["agreement"] == judge.accuracy > 0.98 and found["distance"] == judge.distance > 1
    copies = judge(digits.train.images[:20] / 16, digits.train.labels[:20])
    assert copies["distance"] == copies["least"] == 0
    assert judge(np.zeros((10, 1, 8, 8)), np.arange(10))["agreement"] == pytest.approx(0.1)


def test_the_stored_digits_meet_what_is_asked_of_them(script):
    rows = {row["guidance"]: row for row in script.stored()
            if row["model"] == "dit-digits" and (row.get("method"), row.get("steps")) == ("ddim", 50)}  # fmt: skip
    assert rows[2]["agreement"] >= 0.97 and rows[1]["agreement"] >= 0.85
    assert min(rows[1]["distance"], rows[2]["distance"]) >= script.Judge().distance
