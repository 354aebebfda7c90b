"""Assignments are notebooks with nbgrader's metadata, and their solutions pass their tests."""

import json
import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from tinyvit.exercises import grading, nbgrader
from tinyvit.exercises.catalogue import EXERCISES, TOPICS

MADE = nbgrader.assignments()
KEYS = {"schema_version", "grade", "locked", "solution", "task", "grade_id", "points"}


def cells(notebook):
    return [(cell["metadata"]["nbgrader"], cell, "".join(cell["source"])) for cell in notebook["cells"]]


def test_there_is_a_notebook_per_topic_and_a_test_with_points_per_exercise():
    assert len(MADE) == len(TOPICS)
    tests = [about for notebook in MADE.values() for about, _, _ in cells(notebook) if about["grade"]]
    assert sorted(about["grade_id"] for about in tests) == sorted(f"{name}_test" for name in EXERCISES)
    assert all(about["points"] == 1 and about["locked"] and not about["solution"] for about in tests)


@pytest.mark.parametrize("topic", MADE)
def test_a_notebook_is_valid_and_its_cells_have_names_of_their_own(topic):
    nbformat.validate(nbformat.from_dict(MADE[topic]))
    found = cells(MADE[topic])
    assert len({about["grade_id"] for about, _, _ in found}) == len(found) == len({cell["id"] for _, cell, _ in found})
    for about, cell, source in found:
        assert about["schema_version"] == 3 and about.keys() <= KEYS
        assert ("points" in about) == about["grade"]
        assert about["solution"] == ("### BEGIN SOLUTION" in source) == ("### END SOLUTION" in source)
        assert cell["cell_type"] == "code" or not about["solution"]


def test_the_notebooks_of_some_exercises_hold_no_others():
    made = nbgrader.assignments(["softmax", "gelu_backward"], points=5)
    assert list(made) == ["softmax", "gelu"]
    assert [about["points"] for one in made.values() for about, *_ in cells(one) if about["grade"]] == [5, 5]
    with pytest.raises(ValueError, match="did you mean softmax"):
        nbgrader.assignments(["softmaks"])


@pytest.mark.end_to_end
def test_the_solutions_in_the_notebooks_are_right(tmp_path):
    sources = [source for notebook in MADE.values() for about, _, source in cells(notebook) if about["solution"]]
    file = tmp_path / "solutions.py"
    file.write_text("\n\n".join(["import numpy as np", *sources]))
    grades = grading.grade(file, ["softmax", "attention_backward", "block_backward", "worked_example_backward"])
    assert grades.score == 1, grades.table()


def test_a_notebook_runs_with_its_solutions_and_its_tests_fail_without(capsys):
    names = {}
    for _, cell, source in cells(MADE["softmax"]):
        if cell["cell_type"] == "code":
            exec(source, names)
    with pytest.raises(AssertionError):
        names["softmax"] = lambda x: x
        exec(next(source for about, _, source in cells(MADE["softmax"]) if about["grade_id"] == "softmax_test"), names)


@pytest.mark.full
def test_nbgrader_makes_the_students_version_and_scores_right_wrong_and_cheating_submissions(tmp_path):
    """Needs the extra nbgrader."""
    from nbgrader.api import Gradebook
    from nbgrader.nbgraderformat import MetadataValidator

    env = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}  # it calls alembic

    def run(*words):
        command = [sys.executable, "-m", "nbgrader", *words]
        subprocess.run(command, cwd=tmp_path, env=env, check=True, capture_output=True, timeout=300)

    def file_in(folder, notebook):
        file = tmp_path / folder / "softmax" / "softmax.ipynb"
        file.parent.mkdir(parents=True)
        file.write_text(json.dumps(notebook))

    for notebook in MADE.values():
        MetadataValidator().validate_nb(nbformat.from_dict(notebook))
    file_in("source", MADE["softmax"])
    run("generate_assignment", "softmax", "--create")
    students = (tmp_path / "release" / "softmax" / "softmax.ipynb").read_text()
    assert "raise NotImplementedError()" in students and "def softmax(x)" in students
    assert "np.exp" not in students and "randbits" not in students

    right = {about["grade_id"]: source for about, _, source in cells(MADE["softmax"]) if about["solution"]}
    handed = {
        "right": lambda name, source: right.get(name, source),
        "half": lambda name, source: right[name] if name == "softmax_solution" else source,
        "wrong": lambda name, source: right[name].replace("np.exp", "np.exp2") if name in right else source,
        "checks": lambda name, source: source + "\nexercises.check = lambda *a, **k: True" if name in right else source,
        "tests": lambda name, source: "assert True" if name.endswith("_test") else source,
    }
    for student, edit in handed.items():
        notebook = json.loads(students)
        for about, cell, source in cells(notebook):
            cell["source"] = edit(about["grade_id"], source)
        file_in(f"submitted/{student}", notebook)
    run("autograde", "softmax", "--create")
    run("generate_feedback", "softmax")
    with Gradebook(f"sqlite:///{tmp_path}/gradebook.db") as book:
        scores = {one.student.id: one.score for one in book.assignment_submissions("softmax")}
    assert scores == {"right": 2, "half": 1, "wrong": 0, "checks": 0, "tests": 0}
    feedback = (tmp_path / "feedback" / "wrong" / "softmax" / "softmax.html").read_text()
    assert "not right yet" in feedback
