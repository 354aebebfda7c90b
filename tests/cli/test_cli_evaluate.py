import json
import re

import numpy as np
import pytest


def as_json(tinyvit, *arguments):
    status, out, err = tinyvit("evaluate", *arguments, "--json")
    assert (status, err) == (0, "")
    return json.loads(out)


def test_json_has_all_figures_and_they_are_consistent(tinyvit, run):
    scores = as_json(tinyvit, run)
    confusion = np.array(scores["confusion"])
    assert confusion.shape == (10, 10) and confusion.sum() == scores["images"] == 360
    assert scores["test_accuracy"] == np.trace(confusion) / 360
    assert list(scores["per_class"]) == list(scores["precision"]) == list("0123456789")
    recall = np.diag(confusion) / confusion.sum(1)
    np.testing.assert_allclose(list(scores["per_class"].values()), recall, rtol=1e-12)
    assert scores["test_accuracy"] < scores["top5_accuracy"] <= 1 and 0 < scores["ece"] < 1
    assert scores["tta"] is False


def test_the_table_says_the_same_as_json(tinyvit, run):
    scores = as_json(tinyvit, run)
    status, out, err = tinyvit("evaluate", run)
    assert (status, err) == (0, "")
    for name, value in (
        ("test accuracy", f"{100 * scores['test_accuracy']:.2f} %"),
        ("in the top 5", f"{100 * scores['top5_accuracy']:.2f} %"),
        ("test loss", f"{scores['test_loss']:.4f}"),
        ("calib. error", f"{100 * scores['ece']:.2f} %"),
        ("test images", "360 of digits"),
    ):
        assert f"  {name:<13}   {value}\n" in out
    rows = dict(re.findall(r"^  (\d) +\d+ +([\d.]+) %", out, re.MULTILINE))
    assert rows == {name: f"{100 * share:.2f}" for name, share in scores["per_class"].items()}
    assert [float(share) for share in rows.values()] == sorted(float(share) for share in rows.values())


def test_averaging_over_mirror_images_changes_the_loss(tinyvit, run):
    plain, averaged = as_json(tinyvit, run), as_json(tinyvit, run, "--tta")
    assert averaged["tta"] is True and averaged["test_loss"] != plain["test_loss"]
    assert averaged["images"] == plain["images"]


def test_the_confusion_matrix_is_drawn_where_asked_and_nothing_else_is_written(tinyvit, run, tmp_path):
    before = {file: file.read_bytes() for file in run.rglob("*") if file.is_file()}
    assert tinyvit("evaluate", run, "--confusion", "who is what.png")[0] == 0
    assert [path.name for path in tmp_path.iterdir()] == ["who is what.png"]
    assert (tmp_path / "who is what.png").read_bytes().startswith(b"\x89PNG")
    assert {file: file.read_bytes() for file in run.rglob("*") if file.is_file()} == before


@pytest.mark.parametrize(("name", "message"), [
    ("confusion.txt", "expected a name that ends with .png"),
    ("nowhere/confusion.png", "is in nowhere, which doesn't exist"),
])  # fmt: skip
def test_a_picture_that_cannot_be_written_is_refused_before_the_run_is_read(refused, name, message):
    assert message in refused("evaluate", "no run", "--confusion", name)
