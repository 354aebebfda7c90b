import json

import pytest

from tinyvit.exercises import nbgrader
from tinyvit.exercises.catalogue import EXERCISES

RIGHT = "def softmax(x):\n    e = np.exp(x - x.max(-1, keepdims=True))\n    return e / e.sum(-1, keepdims=True)\n"


@pytest.fixture
def submission(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(f"import numpy as np\n{RIGHT}\ndef my_gelu(x):\n    raise ValueError('\\x1b[2J')\n")
    return file


def test_a_table_says_what_is_right_and_what_is_not(succeeds, submission):
    lines = succeeds("exercises", "grade", submission).splitlines()
    assert lines[1].split() == ["softmax", "1", "right"]
    assert lines[2].startswith("gelu") and r"line 7: raised ValueError: \x1b[2J" in lines[2]
    assert "1 of 2 right" in lines[3]


def test_json_is_one_object_with_a_score_and_an_entry_per_exercise(as_json, submission):
    grades = as_json("exercises", "grade", submission, "--seed", 5)
    assert (grades["score"], grades["seed"]) == (0.5, 5)
    assert grades["exercises"][0] == {"name": "softmax", "score": 1.0, "status": "right", "message": "right"}
    assert grades["exercises"][1]["status"] == "error"
    assert as_json("exercises", "grade", submission, "--seed", 5) == grades


def test_a_class_gets_a_table_or_comma_separated_values_and_an_empty_file_no_points(succeeds, submission, tmp_path):
    (tmp_path / "empty.py").write_text("")
    (tmp_path / "text.py").write_text("dear teacher")
    assert "0.00  0 of 0 right" in succeeds("exercises", "grade", "empty.py")
    table = succeeds("exercises", "grade", "empty.py", "text.py", submission)
    assert "not read: line 1 isn't Python: invalid syntax" in table and "mean" in table
    rows = succeeds("exercises", "grade", "empty.py", submission, "--csv").splitlines()
    assert rows[:2] == ["file,score,softmax,gelu,not right",
                        'empty.py,0,0,0,"missing: softmax, gelu"']
    assert rows[2].startswith(f"{submission},0.5,1,0,gelu 0: ")


@pytest.mark.parametrize(("arguments", "message"), [
    ("mark", "unknown command 'exercises mark'; did you mean exercises grade?"),
    ("grade", "missing FILE: scripts, notebooks, or folders of them"),
    ("grade gone.py", "expected an existing script or notebook, FILE.py or FILE.ipynb, got gone.py"),
    ("grade text.py", "text.py has no exercise: line 1 isn't Python: invalid syntax"),
    ("grade course", "course has no script and no notebook"),
    ("grade mine.py --exercises sofmax", "there is no exercise 'sofmax'; did you mean softmax"),
    ("grade mine.py --seed -1", "expected a seed of at least 0, got -1"),
    ("grade mine.py --memory 1", "at least 16 MB"),
    ("check mine.py sofmax", "there is no exercise 'sofmax'; did you mean softmax"),
    ("check mine.py linear", "mine.py has no function linear or my_linear"),
    ("check course linear", "expected an existing script or notebook"),
    ("export", "missing --nbgrader"),
    ("export --nbgrader mine.py", "Not a directory"),
    ("export --nbgrader c --points 0", "points must be at least 1"),
])  # fmt: skip
def test_bad_input_is_refused_in_a_line(refused, submission, tmp_path, arguments, message):
    (tmp_path / "course").mkdir()
    (tmp_path / "text.py").write_text("dear teacher")
    assert message in refused("exercises", *arguments.split())


def test_all_are_listed_with_notebook_and_level_and_one_is_checked(tinyvit, submission):
    rows = [line.split() for line in tinyvit("exercises")[1].splitlines()]
    assert len(rows) == 1 + len(EXERCISES)
    assert ["softmax_backward", "03_attention", "2", "softmax"] in rows
    right, wrong = (tinyvit("exercises", "check", submission, name) for name in ("softmax", "gelu"))
    assert (right[0], wrong[0]) == (0, 1)
    assert right[1].startswith("softmax: right.") and "line 7 (raise ValueError(" in wrong[1]


def test_the_help_names_both_commands_and_says_what_grading_does_not_hold(succeeds):
    assert all(f"exercises {name} " in succeeds("exercises", "--help") for name in ("grade", "export"))
    assert "does not hold a determined attacker" in " ".join(succeeds("exercises", "grade", "--help").split())


def test_assignments_are_written_where_nbgrader_reads_them_and_are_kept(succeeds, refused, tmp_path):
    out = succeeds("exercises", "export", "--nbgrader", "course", "--exercises", "softmax", "gelu")
    assert "2 assignments written to course/source" in out
    file = tmp_path / "course" / "source" / "softmax" / "softmax.ipynb"
    assert json.loads(file.read_text()) == nbgrader.assignments(["softmax"])["softmax"]
    file.write_text("mine")
    said = refused("exercises", "export", "--nbgrader", "course")
    assert "are there already: course/source/softmax/softmax.ipynb" in said and "with --force" in said
    succeeds("exercises", "export", "--nbgrader", "course", "--force")
    assert json.loads(file.read_text()) == nbgrader.assignments()["softmax"]
