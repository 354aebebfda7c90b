import json

import pytest

from tinyvit.exercises import nbgrader

RIGHT = "def softmax(x):\n    e = np.exp(x - x.max(-1, keepdims=True))\n    return e / e.sum(-1, keepdims=True)\n"


@pytest.fixture
def submission(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(f"import numpy as np\n{RIGHT}\ndef my_gelu(x):\n    raise ValueError('\\x1b[2J')\n")
    return file


def test_a_table_says_what_is_right_and_what_is_not(tinyvit, submission):
    status, out, err = tinyvit("exercises", "grade", submission)
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert lines[1].split() == ["softmax", "1", "right"]
    assert lines[2].startswith("gelu") and r"line 7: raised ValueError: \x1b[2J" in lines[2]
    assert "1 of 2 right" in lines[3]


def test_json_is_one_object_with_a_score_and_an_entry_per_exercise(tinyvit, submission):
    status, out, err = tinyvit("exercises", "grade", submission, "--json", "--seed", 5)
    grades = json.loads(out)
    assert (status, err, grades["score"], grades["seed"]) == (0, "", 0.5, 5)
    assert grades["exercises"][0] == {"name": "softmax", "score": 1.0, "status": "right", "message": "right"}
    assert grades["exercises"][1]["status"] == "error"
    assert tinyvit("exercises", "grade", submission, "--json", "--seed", 5)[1] == out


def test_bad_input_is_refused_in_a_line(refused, submission, tmp_path):
    assert "expected grade FILE.py|FILE.ipynb, or export --nbgrader DIR, got nothing" in refused("exercises")
    assert "got mark" in refused("exercises", "mark")
    assert "missing FILE: The script or notebook" in refused("exercises", "grade")
    assert "gone.py can't be used: No such file" in refused("exercises", "grade", "gone.py")
    assert "there is no exercise 'sofmax'" in refused("exercises", "grade", submission, "--exercises", "sofmax")
    assert "expected a seed of at least 0, got -1" in refused("exercises", "grade", submission, "--seed", "-1")
    assert "at least 16 MB" in refused("exercises", "grade", submission, "--memory", "1")
    assert "missing --nbgrader" in refused("exercises", "export")
    assert "points must be at least 1" in refused("exercises", "export", "--nbgrader", "c", "--points", "0")
    (tmp_path / "empty.py").write_text("")
    assert "empty.py has no exercise" in refused("exercises", "grade", "empty.py")


def test_the_help_says_what_grading_does_not_hold(tinyvit):
    status, out, _ = tinyvit("exercises", "--help")
    assert status == 0 and "does not hold a determined attacker" in " ".join(out.split())


def test_assignments_are_written_where_nbgrader_reads_them_and_are_kept(tinyvit, refused, tmp_path):
    status, out, _ = tinyvit("exercises", "export", "--nbgrader", "course", "--exercises", "softmax", "gelu")
    assert status == 0 and "2 assignments are in course/source" in out
    file = tmp_path / "course" / "source" / "softmax" / "softmax.ipynb"
    assert json.loads(file.read_text()) == nbgrader.assignments(["softmax"])["softmax"]
    file.write_text("mine")
    said = refused("exercises", "export", "--nbgrader", "course")
    assert "course/source/softmax/softmax.ipynb is there already" in said and "by --force" in said
    assert file.read_text() == "mine"
    status, _, _ = tinyvit("exercises", "export", "--nbgrader", "course", "--force")
    assert status == 0 and json.loads(file.read_text()) == nbgrader.assignments()["softmax"]
