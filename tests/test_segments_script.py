"""The script behind the segments in notebook 16, and what it has stored."""

import json
from pathlib import Path

import numpy as np

SCRIPT = Path(__file__).parents[1] / "notebooks" / "results" / "segments.py"


def test_a_digit_changes_its_mask_and_little_else(script):
    photographs = np.random.default_rng(0).integers(0, 256, (20, 3, 32, 32), "uint8")
    drawn = np.zeros((20, 1, 8, 8))
    drawn[:, :, 2:6, 3:5] = 16
    images, masks = script.digits_on_photographs(photographs, drawn)
    assert (images != photographs).any(1)[~masks].sum() == 0 and (masks.sum((1, 2)) == 8 * 9).all()
    for image, mask in zip(images, masks):
        colours = np.unique(image[:, mask], axis=1)
        assert colours.shape == (3, 1) and set(colours.ravel()) <= {0, 255}
    rows, columns = masks.any(2).argmax(1), masks.any(1).argmax(1)
    assert len(set(rows)) > 3 and len(set(columns)) > 3


def test_the_head_is_chosen_on_the_first_half_and_judged_on_the_second(script):
    masks = np.zeros((4, 8, 8), bool)
    masks[:, :4, :4] = True
    segments = np.zeros((2, 4, 2, 2), bool)  # head, image, rows, columns
    segments[0, :2, 0, 0] = segments[1, 2:, 0, 0] = True  # head 0 is right on the first half, head 1 on the second
    assert script.best_head(segments, masks) == ((0,), 0.0)
    assert script.best_head(segments[:, ::-1], masks) == ((1,), 0.0)
    assert script.best_head(segments[None, :, [0, 2, 1, 3]], masks) == ((0, 0), 0.5)


def test_the_stored_rows_are_of_four_models_once_with_all_blocks_and_once_with_the_last(script):
    stored = json.loads(script.FILE.read_text())
    assert [(row["model"], row["blocks"]) for row in stored["rows"]] == [
        (model, blocks) for model in ("DINO", "MAE", "supervised", "random") for blocks in ("all", "last")
    ]
    assert all(0 < row["overlap"] < 1 and row["head"] in range(4) for row in stored["rows"])
