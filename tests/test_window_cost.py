"""The script behind the times of windows in notebook 13, and what it has stored."""

import json
from pathlib import Path

from tinyvit.models import build
from tinyvit.models.summary import summarize

SCRIPT = Path(__file__).parents[1] / "notebooks" / "results" / "window_cost.py"


def test_the_stored_rows_are_those_of_the_script_with_their_multiply_adds(script):
    stored = json.loads(script.FILE.read_text())
    assert stored["made with"]["threads"] == 1 and stored["made with"]["rounds"] == script.ROUNDS
    assert [(row["side"], row["model"]) for row in stored["rows"]] == [
        (side, model) for side in script.SIZES for model in ("ViT", "Swin")
    ]
    for row in stored["rows"]:
        model = build(script.configured(row["model"], row["side"]), device="meta")
        assert row["multiply_adds"] == sum(part.multiply_adds for part in summarize(model))


def test_both_models_are_measured_at_each_size(script):
    rows = script.measured((8, 16), 2)
    assert [(row["model"], row["side"]) for row in rows] == [("ViT", 8), ("Swin", 8), ("ViT", 16), ("Swin", 16)]
    assert all(0 < row["seconds"] < 10 for row in rows)
